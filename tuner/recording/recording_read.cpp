// tuner/recording/recording_read.cpp -- A full sweep of some problems on one device, as a file:
// reading.
//
// Whatever is in the file is hostile until it has been checked: nothing is allocated by a size it
// states, nesting is bounded before the parser recurses, and every value has a range.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "core/device_facts.h"
#include "core/error.h"
#include "core/format.h"
#include "tuner/recording/recording.h"
#include "tuner/recording/recording_format.h"

namespace vitune {
namespace {

using nlohmann::json;
using namespace recording_format;

[[noreturn]] void reject(const std::string& why) { throw Error(ErrorCode::kUsage, why); }

const json& member(const json& object, const char* name, json::value_t type) {
  const auto at = object.find(name);
  if (at == object.end()) reject(formatted("\"{}\" is missing", name));
  if (at->type() != type) reject(formatted("\"{}\" is of the wrong type", name));
  return *at;
}

std::string checked_text(const json& value, const char* name) {
  if (!value.is_string()) reject(formatted("\"{}\" holds something that is no text", name));
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > kMaxText) reject(formatted("a text of \"{}\" is too long", name));
  const bool control = std::any_of(text.begin(), text.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (control) reject(formatted("a text of \"{}\" has control characters", name));
  return text;
}

std::string text_member(const json& object, const char* name) {
  return checked_text(member(object, name, json::value_t::string), name);
}

const json& array_member(const json& object, const char* name) {
  return member(object, name, json::value_t::array);
}

std::int64_t integer(const json& value, const char* name, std::int64_t low, std::int64_t high) {
  // A huge unsigned number would wrap into the range.
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (!fits) reject(formatted("\"{}\" holds something that is no integer", name));
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) {
    reject(formatted("\"{}\" holds {}, which is outside {} to {}", name, number, low, high));
  }
  return number;
}

double error_figure(const json& value, const char* name) {
  if (!value.is_number()) reject(formatted("\"{}\" holds something that is no number", name));
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) reject(formatted("\"{}\" holds {}", name, number));
  return number;
}

std::vector<std::string> texts(const json& object, const char* name, std::size_t limit) {
  const json& list = array_member(object, name);
  if (list.size() > limit) reject(formatted("\"{}\" has more than {} entries", name, limit));
  std::vector<std::string> result;
  for (const json& value : list) result.push_back(checked_text(value, name));
  return result;
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c == '_' || std::isalnum(c); }) &&
         std::isdigit(static_cast<unsigned char>(text[0])) == 0;
}

// One list per name, all of the same length, and how to read an entry.
class Columns {
 public:
  Columns(const json& object, std::size_t rows) : object_(object) {
    for (const std::string& name : column_names()) check(name.c_str(), rows);
  }
  std::int64_t integer_at(const char* name, std::size_t row, std::int64_t high) const {
    return integer(object_.at(name)[row], name, 0, high);
  }
  double error_at(const char* name, std::size_t row) const {
    return error_figure(object_.at(name)[row], name);
  }

 private:
  void check(const char* name, std::size_t rows) const {
    if (array_member(object_, name).size() != rows) {
      reject(formatted("\"{}\" does not have {} entries", name, rows));
    }
  }
  const json& object_;
};

Timing read_timing(const Columns& columns, const std::string& prefix, std::size_t row) {
  constexpr std::int64_t kDay = 86400ll * 1000 * 1000 * 1000;
  const auto time = [&](const char* suffix) {
    return static_cast<double>(columns.integer_at((prefix + suffix).c_str(), row, kDay)) / 1000;
  };
  Timing timing{time("_ns"), time("_low_ns"), time("_high_ns"), 0};
  timing.samples =
      static_cast<int>(columns.integer_at((prefix + "_samples").c_str(), row, 1000000));
  return timing;
}

void check_measured(const Timing& timing) {
  // Rounding to four digits keeps the order but may make the three equal.
  const bool sane = timing.low_us > 0 && timing.low_us <= timing.median_us &&
                    timing.median_us <= timing.high_us && timing.samples > 0;
  if (!sane) reject("a candidate that is \"ok\" has no sound timing");
}

Trial read_trial(const Columns& columns, std::size_t row, TrialStatus status, std::string reason) {
  Trial trial;
  trial.status = status;
  trial.reason = std::move(reason);
  trial.origin = Origin::kReplayed;
  trial.compile.registers = static_cast<int>(columns.integer_at("registers", row, 1024));
  trial.compile.spill_bytes = static_cast<int>(columns.integer_at("spill_bytes", row, INT32_MAX));
  trial.compile.shared_bytes = columns.integer_at("shared_bytes", row, 1 << 30);
  trial.compile.compile_ms = static_cast<double>(columns.integer_at("compile_ms", row, INT32_MAX));
  trial.error = {columns.error_at("max_error", row), columns.error_at("rms_error", row),
                 columns.error_at("max_bound", row), columns.error_at("rms_bound", row)};
  trial.measurement.low_confidence = columns.integer_at("low_confidence", row, 1) == 1;
  trial.measurement.cold = read_timing(columns, "cold", row);
  trial.measurement.warm = read_timing(columns, "warm", row);
  if (status == TrialStatus::kOk) {
    check_measured(trial.measurement.cold);
    check_measured(trial.measurement.warm);
  }
  return trial;
}

void read_configs(const json& object, RecordedProblem& problem) {
  const json& lists = array_member(object, "configs");
  if (lists.size() != problem.parameters.size()) {
    reject("\"configs\" does not have one list per parameter");
  }
  for (std::size_t p = 0; p < lists.size(); ++p) {
    if (!lists[p].is_array() || lists[p].size() != problem.trials.size()) {
      reject("a list of \"configs\" does not have one value per candidate");
    }
    for (std::size_t row = 0; row < problem.trials.size(); ++row) {
      problem.trials[row].config.set(problem.parameters[p],
                                     integer(lists[p][row], "configs", INT32_MIN, INT32_MAX));
    }
  }
  std::set<Config> seen;
  for (const Trial& trial : problem.trials) {
    if (!seen.insert(trial.config).second) reject(trial.config.text() + " is recorded twice");
  }
}

std::vector<TrialStatus> read_statuses(const json& object) {
  std::vector<TrialStatus> result;
  for (const std::string& name : texts(object, "statuses", 64)) {
    const auto status = trial_status_from_name(name);
    if (!status) reject(formatted("there is no status \"{}\"", name));
    result.push_back(*status);
  }
  return result;
}

std::vector<std::string> read_parameters(const json& object) {
  std::vector<std::string> names = texts(object, "parameters", kMaxParameters);
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) {
    reject("a parameter is named twice");
  }
  for (const std::string& name : names) {
    if (!is_name(name)) reject(formatted("\"{}\" is no name of a parameter", name));
  }
  return names;
}

void read_sample(const json& object, RecordedProblem& problem) {
  if (!object.contains("drawn")) return;
  const auto rows = static_cast<std::int64_t>(problem.trials.size());
  problem.space_size =
      integer(member(object, "space", json::value_t::number_unsigned), "space", rows, INT32_MAX);
  const json& drawn = array_member(object, "drawn");
  if (drawn.size() != problem.trials.size()) {
    reject("\"drawn\" does not have one value per candidate");
  }
  for (const json& value : drawn) problem.drawn.push_back(integer(value, "drawn", 0, 1) == 1);
}

RecordedProblem read_problem(const json& object) {
  if (!object.is_object()) reject("a problem is no object");
  RecordedProblem problem;
  problem.name = text_member(object, "name");
  problem.text = text_member(object, "text");
  problem.parameters = read_parameters(object);
  const std::vector<TrialStatus> statuses = read_statuses(object);
  const std::vector<std::string> reasons = texts(object, "reasons", kMaxCandidates);
  const json& status = array_member(object, "status");
  const json& reason = array_member(object, "reason");
  if (status.size() > kMaxCandidates) reject("a problem has too many candidates");
  if (reason.size() != status.size()) reject("\"reason\" and \"status\" differ in length");
  const Columns columns(member(object, "columns", json::value_t::object), status.size());
  const auto last = [](const auto& list) { return static_cast<std::int64_t>(list.size()) - 1; };
  for (std::size_t row = 0; row < status.size(); ++row) {
    const auto s = static_cast<std::size_t>(integer(status[row], "status", 0, last(statuses)));
    const auto r = static_cast<std::size_t>(integer(reason[row], "reason", 0, last(reasons)));
    problem.trials.push_back(read_trial(columns, row, statuses[s], reasons[r]));
  }
  read_configs(object, problem);
  read_sample(object, problem);
  return problem;
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

DeviceInfo read_device(const json& object) {
  DeviceInfo device;
  device.name = text_member(object, "name");
  for (const auto& fact : device_facts()) {
    const auto at = object.find(fact.name);
    if (at == object.end()) reject(formatted("the device has no \"{}\"", fact.name));
    fact.set(device, integer(*at, fact.name.c_str(), 0, std::min(fact.most, kMostBytes)));
  }
  return device;
}

Recording read_document(const json& document) {
  if (!document.is_object() || document.value("format", json()) != json(kName)) {
    reject("it is no vitune recording");
  }
  const auto version =
      integer(member(document, "version", json::value_t::number_unsigned), "version", 0, INT32_MAX);
  if (version != kVersion) {
    reject(formatted("it has version {} of the format; this program reads version {}", version,
                     kVersion));
  }
  Recording recording;
  recording.created = text_member(document, "created");
  recording.compiler_version = text_member(document, "compiler_version");
  recording.template_digest = text_member(document, "template_digest");
  recording.device = read_device(member(document, "device", json::value_t::object));
  const json& problems = array_member(document, "problems");
  if (problems.size() > kMaxProblems) reject("it has too many problems");
  for (const json& problem : problems) {
    recording.problems.push_back(read_problem(problem));
    const RecordedProblem& added = recording.problems.back();
    if (recording.find(added.text) != &added)
      reject("the problem " + added.text + " is there twice");
  }
  return recording;
}

std::string decompress(std::string_view bytes) {
  ZSTD_DStream* stream = ZSTD_createDStream();
  if (stream == nullptr) throw std::bad_alloc();
  const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> owner(stream,
                                                                            ZSTD_freeDStream);
  std::string text;
  std::string chunk(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::size_t left = 1;
  while (left != 0) {
    ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
    left = ZSTD_decompressStream(stream, &out, &in);
    if (ZSTD_isError(left) != 0)
      reject(formatted("it does not decompress: {}", ZSTD_getErrorName(left)));
    text.append(chunk.data(), out.pos);
    if (text.size() > kMaxTextBytes) reject("it decompresses to more than any recording has");
    if (left != 0 && in.pos == in.size && out.pos < out.size) reject("it is cut short");
  }
  if (in.pos != in.size) reject("there is something behind its end");
  return text;
}

// The parser's tree is freed recursively, and may take fifty times the room of its text: what it
// will be is bounded before it is built.
void check_structure(std::string_view text) {
  std::size_t depth = 0, values = 0, parts = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
      ++parts;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) reject("it is nested too deeply");
      ++parts;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (c == ',') {
      ++values;
    }
    if (values > kMaxValues || parts > kMaxParts) {
      reject("it holds more values than any recording has; record fewer problems per file");
    }
  }
}

std::string read_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
    reject("opening it: no file descriptor is left; raise the limit of open files (`ulimit -n`)");
  }
  if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (fd >= 0) ::close(fd);
    reject("it is not there, or it is no regular file that this user may read");
  }
  std::string bytes(65536, '\0');
  std::string result;
  ssize_t got = 0;
  while (result.size() <= kMaxFileBytes && (got = ::read(fd, bytes.data(), bytes.size())) > 0) {
    result.append(bytes.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  if (got < 0) reject("it cannot be read");
  if (result.size() > kMaxFileBytes) reject("it is larger than any recording");
  return result;
}

}  // namespace

Recording Recording::parse(std::string_view bytes, const std::string& origin) {
  try {
    const std::string text = decompress(bytes);
    check_structure(text);
    return read_document(json::parse(text));
  } catch (const json::exception&) {
    throw Error(ErrorCode::kUsage,
                formatted("cannot use the recording {}: it is malformed", origin));
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage,
                formatted("cannot use the recording {}: {}", origin, error.what()));
  }
}

Recording Recording::load(const std::filesystem::path& path) {
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage,
                formatted("cannot use the recording {}: {}", path.string(), error.what()));
  }
  return parse(bytes, path.string());
}

}  // namespace vitune
