// db/json_records.cpp -- Field by field, with the ranges of db/schema/*.sql.
// SPDX-License-Identifier: Apache-2.0
#include "db/json_records.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "db/device_table.h"
#include "db/json_format.h"

namespace vitune {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr double kMaxUs = 1e12;

bool is_config_name(std::string_view name) {
  return name.size() >= 2 && name.size() <= 64 && name[0] == 'k' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

// A 64-bit signed integer; JSON's 1.0 and 2^63 are none.
std::optional<std::int64_t> as_integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMaxInt64}) {
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

Config config_from(const Json& value, const std::string& where) {
  constexpr std::size_t kMaxEntries = 64;
  if (!value.is_object()) {
    refuse_import(where, "must be an object of integers, and perhaps a family's name");
  }
  if (value.size() > kMaxEntries) refuse_import(where, "has more than 64 entries");
  Config config;
  for (const auto& [name, entry] : value.items()) {
    if (name == "family") {
      try {
        config.set_family(entry.is_string() ? entry.get<std::string>() : "?");
      } catch (const Error&) {
        refuse_import(where + "." + name, "must be a family's name");
      }
      continue;
    }
    if (!is_config_name(name)) {
      refuse_import(where, "holds a name that is not k followed by letters and digits");
    }
    const auto integer = as_integer(entry);
    if (!integer) refuse_import(where + "." + name, "must be a 64-bit integer");
    config.set(name, *integer);
  }
  return config;
}

}  // namespace

void refuse_import(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kUsage, "import: " + where + ": " + what +
                                     "; nothing was imported (give a file that `vitune db export` "
                                     "wrote)");
}

JsonRecord::JsonRecord(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) refuse_import(where_, "must be an object");
}

const Json& JsonRecord::take(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) refuse_import(where(name), "is missing");
  taken_.insert(name);
  return *found;
}

std::int64_t JsonRecord::integer(const char* name, std::int64_t low, std::int64_t high) {
  const auto value = as_integer(take(name));
  if (!value || *value < low || *value > high) {
    refuse_import(where(name),
                  "must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return *value;
}

int JsonRecord::small_integer(const char* name) {
  return static_cast<int>(integer(name, 0, kMaxInt));
}

double JsonRecord::real(const char* name, double low, double high) {
  const Json& value = take(name);
  if (!value.is_number()) refuse_import(where(name), "must be a number");
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) refuse_import(where(name), "is out of range");
  return number;
}

std::optional<double> JsonRecord::optional_real(const char* name, double low, double high) {
  if (take(name).is_null()) return std::nullopt;
  return real(name, low, high);
}

bool JsonRecord::flag(const char* name) {
  const Json& value = take(name);
  if (!value.is_boolean()) refuse_import(where(name), "must be true or false");
  return value.get<bool>();
}

std::string JsonRecord::text(const char* name, std::size_t limit, bool may_be_empty) {
  const Json& value = take(name);
  if (!value.is_string()) refuse_import(where(name), "must be a text");
  const auto& text = value.get_ref<const std::string&>();
  if (!(may_be_empty && text.empty()) && !is_plain_text(text, limit)) {
    refuse_import(where(name), "must have " + std::string(may_be_empty ? "0" : "1") + " to " +
                                   std::to_string(limit) +
                                   " letters, digits and characters of \" _=.,:@*%/+-[]()\"");
  }
  return text;
}

Digest JsonRecord::digest(const char* name) {
  const auto digest = Digest::from_hex(text(name, 64));
  if (!digest) refuse_import(where(name), "must be 64 hexadecimal digits");
  return *digest;
}

Config JsonRecord::config(const char* name) { return config_from(take(name), where(name)); }

std::optional<Config> JsonRecord::optional_config(const char* name) {
  if (take(name).is_null()) return std::nullopt;
  return config(name);
}

Timing JsonRecord::timing(const char* name) {
  JsonRecord record(take(name), where(name));
  Timing timing;
  timing.median_us = record.real("median_us", 0, kMaxUs);
  timing.low_us = record.real("low_us", 0, kMaxUs);
  timing.high_us = record.real("high_us", 0, kMaxUs);
  timing.samples = record.small_integer("samples");
  if (timing.low_us > timing.median_us || timing.median_us > timing.high_us) {
    refuse_import(where(name), "must have low_us <= median_us <= high_us");
  }
  record.finish();
  return timing;
}

Measurement JsonRecord::measurement() {
  Measurement measurement;
  measurement.cold = timing("cold");
  measurement.warm = timing("warm");
  measurement.low_confidence = flag("low_confidence");
  return measurement;
}

ErrorFigures JsonRecord::error_figures() {
  const auto figure = [this](const char* name) {
    return optional_real(name, 0, 1e300).value_or(std::numeric_limits<double>::infinity());
  };
  ErrorFigures error;
  error.max_error = figure("max_error");
  error.rms_error = figure("rms_error");
  error.max_bound = figure("max_bound");
  error.rms_bound = figure("rms_bound");
  return error;
}

void JsonRecord::finish() const {
  if (taken_.size() == object_.size()) return;
  for (const auto& [name, value] : object_.items()) {
    if (taken_.contains(name)) continue;
    // The name comes from outside; only what a terminal cannot act on is shown.
    refuse_import(where_, is_plain_text(name, 64) ? "has the unknown field \"" + name + "\""
                                                  : std::string("has an unknown field"));
  }
}

DeviceInfo read_device(const Json& object, const std::string& where) {
  JsonRecord record(object, where);
  DeviceInfo device;
  device.cc_major = static_cast<int>(record.integer("cc_major", 0, 1000));
  device.cc_minor = static_cast<int>(record.integer("cc_minor", 0, 1000));
  device.sm_count = static_cast<int>(record.integer("sm_count", 0, 1'000'000));
  device.shared_per_block = record.integer("shared_per_block", 0, kMaxInt64);
  device.shared_per_sm = record.integer("shared_per_sm", 0, kMaxInt64);
  device.registers_per_sm = record.integer("registers_per_sm", 0, kMaxInt64);
  device.threads_per_sm = static_cast<int>(record.integer("threads_per_sm", 0, 1'000'000));
  device.l2_bytes = record.integer("l2_bytes", 0, kMaxInt64);
  device.memory_bus_bits = record.small_integer("memory_bus_bits");
  device.memory_clock_khz = record.small_integer("memory_clock_khz");
  device.clock_khz = record.small_integer("clock_khz");
  device.name = record.text("name", 256, true);
  device.memory_bytes = record.integer("memory_bytes", 0, kMaxInt64);
  device.driver_version = record.small_integer("driver_version");
  record.finish();
  return device;
}

ProblemKey read_problem(const Json& object, const std::string& where) {
  JsonRecord record(object, where);
  ProblemKey problem;
  problem.operator_name = record.text("operator", 64);
  problem.text = record.text("text", 4096);
  record.finish();
  return problem;
}

ImportedWinner read_winner(const Json& object, const std::string& where) {
  JsonRecord record(object, where);
  ImportedWinner result;
  result.device = record.integer("device", 0, kMaxImportRecords);
  result.problem = record.integer("problem", 0, kMaxImportRecords);
  Winner& winner = result.winner;
  const auto objective = objective_from_name(record.text("objective", 16));
  if (!objective) refuse_import(record.where("objective"), "must be \"cold\" or \"warm\"");
  winner.objective = *objective;
  winner.config = record.config("config");
  winner.kernel_key = record.digest("kernel_key");
  if (!origin_from_name(record.text("origin", 16))) {
    refuse_import(record.where("origin"), "is no known origin");
  }
  record.flag("verified");
  winner.origin = Origin::kImported;
  winner.verified = false;
  winner.measurement = record.measurement();
  winner.error = record.error_figures();
  winner.runner_up = record.optional_config("runner_up");
  winner.lead_percent = record.real("lead_percent", -1e12, 1e12);
  winner.lead_low_percent = record.real("lead_low_percent", -1e12, 1e12);
  winner.lead_high_percent = record.real("lead_high_percent", -1e12, 1e12);
  winner.default_us = record.optional_real("default_us", 0, kMaxUs);
  winner.trials = record.integer("trials", 0, kMaxInt64);
  winner.driver_version = record.small_integer("driver_version");
  winner.compiler_version = record.text("compiler_version", 256, true);
  winner.tuned_at = record.text("tuned_at", 64, true);
  record.finish();
  return result;
}

ImportedTrial read_trial(const Json& object, const std::string& where) {
  JsonRecord record(object, where);
  ImportedTrial result;
  result.device = record.integer("device", 0, kMaxImportRecords);
  result.problem = record.integer("problem", 0, kMaxImportRecords);
  Trial& trial = result.trial;
  trial.config = record.config("config");
  trial.kernel_key = record.digest("kernel_key");
  const auto status = trial_status_from_name(record.text("status", 32));
  if (!status) refuse_import(record.where("status"), "is no known status");
  trial.status = *status;
  if (!origin_from_name(record.text("origin", 16))) {
    refuse_import(record.where("origin"), "is no known origin");
  }
  trial.origin = Origin::kImported;
  if (trial.status != TrialStatus::kOk) trial.reason = "imported; the reason was not exported";
  trial.compile.registers = static_cast<int>(record.integer("registers", 0, 65536));
  trial.compile.spill_bytes = record.small_integer("spill_bytes");
  trial.compile.shared_bytes = record.integer("shared_bytes", 0, std::int64_t{1} << 30);
  trial.compile.compile_ms = record.real("compile_ms", 0, 1e12);
  trial.measurement = record.measurement();
  trial.error = record.error_figures();
  record.finish();
  return result;
}

ProblemRequest read_request(const Json& object, const std::string& where) {
  JsonRecord record(object, where);
  ProblemRequest request;
  request.operator_name = record.text("operator", 64);
  request.problem = record.text("text", 4096);
  request.calls = record.integer("calls", 0, kMaxInt64);
  request.total_us = record.real("total_us", 0, 1e300);
  record.finish();
  return request;
}

}  // namespace vitune
