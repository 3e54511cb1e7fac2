// db/winner_table.cpp -- Winners as rows.
// SPDX-License-Identifier: Apache-2.0
#include "db/winner_table.h"

#include <algorithm>
#include <compare>
#include <string>
#include <tuple>

#include "db/row_codec.h"
#include "db/tables.h"

namespace vitune {
namespace {

// With fewer samples no pair of order statistics covers the median with 95 %.
constexpr int kLeastSamples = 6;

// A date in ISO 8601 that sorts before the earlier ones.
struct Later {
  std::string date;
  auto operator<=>(const Later& other) const { return other.date <=> date; }
};

Value or_null(const std::optional<double>& figure) {
  if (figure) return *figure;
  return std::monostate{};
}

Value or_null(const std::optional<Config>& config) {
  if (config) return config->text();
  return std::monostate{};
}

Value or_null(const std::optional<Digest>& digest) {
  if (digest) return to_blob(*digest);
  return std::monostate{};
}

}  // namespace

Row winner_key(const Blob& device, const Blob& problem, Objective objective) {
  return {device, problem, objective_name(objective)};
}

Row winner_row(const Blob& device, const Blob& problem, const Winner& winner) {
  constexpr std::size_t kMaxVersion = 256;
  constexpr std::size_t kMaxTime = 64;
  Row row = winner_key(device, problem, winner.objective);
  row.insert(row.end(),
             {winner.config.text(), to_blob(winner.kernel_key), or_null(winner.image_digest),
              origin_name(winner.origin), std::int64_t{winner.verified}});
  append(row, winner.measurement);
  append(row, winner.error);
  row.insert(row.end(),
             {or_null(winner.runner_up), winner.lead_percent, winner.lead_low_percent,
              winner.lead_high_percent, or_null(winner.default_us), winner.trials,
              std::int64_t{winner.driver_version}, clipped(winner.compiler_version, kMaxVersion),
              clipped(winner.tuned_at, kMaxTime)});
  return row;
}

std::optional<Winner> winner_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    reader.blob();
    reader.blob();
    Winner winner;
    winner.objective = reader.objective();
    winner.config = reader.config();
    winner.kernel_key = reader.digest();
    winner.image_digest = reader.optional_digest();
    winner.origin = reader.origin();
    winner.verified = reader.flag();
    winner.measurement = reader.measurement();
    winner.error = reader.error_figures();
    const auto runner_up = reader.optional_text();
    if (runner_up) winner.runner_up = Config::parse(*runner_up);
    winner.lead_percent = reader.real();
    winner.lead_low_percent = reader.real();
    winner.lead_high_percent = reader.real();
    winner.default_us = reader.optional_real();
    winner.trials = reader.integer();
    winner.driver_version = reader.small_integer();
    winner.compiler_version = reader.text();
    winner.tuned_at = reader.text();
    return winner;
  });
}

bool better_winner(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const Winner winner = winner_from_row(row).value_or(Winner{});
    const Timing& timing = winner.measurement.by(winner.objective);
    const bool has_interval = timing.samples >= kLeastSamples && timing.median_us > 0;
    return std::tuple(!winner.verified, winner.origin, !has_interval,
                      winner.measurement.low_confidence, std::max(timing.high_us, timing.median_us),
                      timing.median_us, -std::int64_t{timing.samples}, Later{winner.tuned_at},
                      winner.config.text(), row_digest(kWinnerTable.name, row));
  };
  return rank(a) < rank(b);
}

}  // namespace vitune
