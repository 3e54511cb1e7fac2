// db/trial_table.cpp -- Trials as rows.
// SPDX-License-Identifier: Apache-2.0
#include "db/trial_table.h"

#include <tuple>

#include "db/row_codec.h"
#include "db/tables.h"

namespace vitune {

Row trial_key(const Blob& device, const Blob& problem, const Config& config) {
  return {device, problem, config.text()};
}

Row trial_row(const Blob& device, const Blob& problem, const Trial& trial) {
  constexpr std::size_t kMaxReason = 4096;
  Row row = trial_key(device, problem, trial.config);
  row.insert(row.end(), {to_blob(trial.kernel_key), trial_status_name(trial.status),
                         clipped(trial.reason, kMaxReason), origin_name(trial.origin)});
  append(row, trial.compile);
  append(row, trial.error);
  append(row, trial.measurement);
  return row;
}

std::optional<Trial> trial_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    reader.blob();
    reader.blob();
    Trial trial;
    trial.config = reader.config();
    trial.kernel_key = reader.digest();
    trial.status = reader.status();
    trial.reason = reader.text();
    trial.origin = reader.origin();
    trial.compile = reader.compile_facts();
    trial.error = reader.error_figures();
    trial.measurement = reader.measurement();
    return trial;
  });
}

bool better_trial(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const Trial trial = trial_from_row(row).value_or(Trial{});
    return std::tuple(trial.origin, trial.status != TrialStatus::kOk,
                      -std::int64_t{trial.measurement.cold.samples},
                      trial.measurement.cold.median_us, row_digest(kTrialTable.name, row));
  };
  return rank(a) < rank(b);
}

}  // namespace vitune
