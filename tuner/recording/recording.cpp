// tuner/recording/recording.cpp -- A full sweep of some problems on one device, as a file: writing.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/recording/recording.h"

#include <zstd.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/device_facts.h"
#include "core/error.h"
#include "core/format.h"
#include "core/output_file.h"
#include "generator/operator.h"
#include "tuner/recording/recording_format.h"

namespace vitune {
namespace {

using nlohmann::json;

// `value` with four significant decimal digits.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  // Dividing by a power of ten that is exact gives the shortest decimal text again.
  return unit >= 1 ? std::round(value / unit) * unit
                   : std::round(value / unit) / std::round(1 / unit);
}

std::int64_t nanoseconds(double microseconds) {
  return static_cast<std::int64_t>(std::llround(rounded(microseconds * 1000)));
}

// Gives each distinct text a number, in the order of their first use.
class Dictionary {
 public:
  std::size_t number(const std::string& text) {
    const auto [at, added] = numbers_.emplace(text, texts_.size());
    if (added) texts_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> texts_;
};

void append_timing(json& columns, const std::string& prefix, const Timing& timing) {
  columns[prefix + "_ns"].push_back(nanoseconds(timing.median_us));
  columns[prefix + "_low_ns"].push_back(nanoseconds(timing.low_us));
  columns[prefix + "_high_ns"].push_back(nanoseconds(timing.high_us));
  columns[prefix + "_samples"].push_back(timing.samples);
}

void append_figures(json& columns, const Trial& trial) {
  columns["registers"].push_back(trial.compile.registers);
  columns["spill_bytes"].push_back(trial.compile.spill_bytes);
  columns["shared_bytes"].push_back(trial.compile.shared_bytes);
  columns["compile_ms"].push_back(std::llround(trial.compile.compile_ms));
  columns["max_error"].push_back(rounded(trial.error.max_error));
  columns["rms_error"].push_back(rounded(trial.error.rms_error));
  columns["max_bound"].push_back(rounded(trial.error.max_bound));
  columns["rms_bound"].push_back(rounded(trial.error.rms_bound));
  columns["low_confidence"].push_back(trial.measurement.low_confidence ? 1 : 0);
  append_timing(columns, "cold", trial.measurement.cold);
  append_timing(columns, "warm", trial.measurement.warm);
}

// A recording has a value per parameter and candidate, and no place for a family.
void require_no_family(const RecordedProblem& problem) {
  for (const Trial& trial : problem.trials) {
    if (trial.config.family().empty()) continue;
    throw Error(ErrorCode::kFailure,
                formatted("{} cannot be recorded: {} names its family, which this version of the "
                          "format does not hold",
                          problem.name, trial.config.text()));
  }
}

json problem_json(const RecordedProblem& problem) {
  require_no_family(problem);
  Dictionary statuses, reasons;
  json status = json::array(), reason = json::array(), configs = json::array(),
       columns = json::object();
  for (const std::string& name : recording_format::column_names()) columns[name] = json::array();
  for (const std::string& parameter : problem.parameters) {
    json values = json::array();
    for (const Trial& trial : problem.trials) values.push_back(trial.config.at(parameter));
    configs.push_back(std::move(values));
  }
  for (const Trial& trial : problem.trials) {
    status.push_back(statuses.number(trial_status_name(trial.status)));
    reason.push_back(reasons.number(trial.reason.substr(0, recording_format::kMaxText)));
    append_figures(columns, trial);
  }
  json document = {{"name", problem.name},
                   {"text", problem.text},
                   {"parameters", problem.parameters},
                   {"configs", std::move(configs)},
                   {"statuses", statuses.texts()},
                   {"status", std::move(status)},
                   {"reasons", reasons.texts()},
                   {"reason", std::move(reason)},
                   {"columns", std::move(columns)}};
  if (problem.drawn.empty()) return document;
  document["space"] = problem.space_size;
  document["drawn"] = json::array();
  for (const bool drawn : problem.drawn) document["drawn"].push_back(drawn ? 1 : 0);
  return document;
}

json device_json(const DeviceInfo& device) {
  json facts = {{"name", device.name}};
  for (const auto& fact : device_facts()) facts[fact.name] = fact.get(device);
  return facts;
}

}  // namespace

std::string Recording::serialise() const {
  json document = {{"format", recording_format::kName},
                   {"version", recording_format::kVersion},
                   {"created", created},
                   {"compiler_version", compiler_version},
                   {"template_digest", template_digest},
                   {"device", device_json(device)},
                   {"problems", json::array()}};
  for (const auto& problem : problems) document["problems"].push_back(problem_json(problem));
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 19);
  if (ZSTD_isError(size) != 0) {
    throw Error(ErrorCode::kFailure,
                formatted("cannot compress a recording: {}", ZSTD_getErrorName(size)));
  }
  packed.resize(size);
  return packed;
}

void Recording::save(const std::filesystem::path& path) const {
  const std::error_code error = write_output_file(path, serialise());
  if (!error) return;
  throw Error(ErrorCode::kFailure, formatted("cannot write {}: {}; is there room, and may this "
                                             "user write there?",
                                             path.string(), error.message()));
}

const RecordedProblem* Recording::find(std::string_view text) const {
  for (const auto& problem : problems) {
    if (problem.text == text) return &problem;
  }
  return nullptr;
}

void Recording::put(RecordedProblem problem) {
  for (auto& existing : problems) {
    if (existing.text != problem.text) continue;
    existing = std::move(problem);
    return;
  }
  problems.push_back(std::move(problem));
}

std::string recorded_templates(const Recording& recording) {
  std::set<std::string> digests;
  for (const RecordedProblem& problem : recording.problems) {
    const Operator* named = find_operator(problem.text.substr(0, problem.text.find(' ')));
    if (named != nullptr) digests.insert(named->templates().digest().hex());
  }
  if (digests.size() == 1) return *digests.begin();
  Sha256 all;
  for (const std::string& digest : digests) all.add(digest);
  return digests.empty() ? std::string() : all.finish().hex();
}

}  // namespace vitune
