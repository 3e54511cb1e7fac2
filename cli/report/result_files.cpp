// cli/report/result_files.cpp -- Readers of JSON documents of known fields.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/result_files.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/compare/timing_figures.h"
#include "cli/compare/timing_files.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRows = 10'000;
constexpr double kMost = 1e15;

double positive(const JsonValue& value) {
  const double number = value.number();
  if (number > 0 && number <= kMost) return number;
  value.refuse(formatted("is {}; a figure above 0 is needed", number));
}

std::optional<double> positive_member(const JsonValue& object, const char* name) {
  const auto found = object.member(name);
  return found ? std::optional(positive(*found)) : std::nullopt;
}

std::string text_member(const JsonValue& object, const char* name) {
  const auto found = object.member(name);
  return found ? found->text() : std::string();
}

void require_schema(const JsonValue& document) {
  const double schema = document.require("schema").number();
  if (schema != 1) {
    document.refuse(formatted("has schema {}: this version reads 1; update vitune", schema));
  }
}

std::string device_name(const JsonValue& document) {
  const auto device = document.member("device");
  if (!device) return {};
  return device->raw().is_object() ? text_member(*device, "name") : device->text();
}

std::vector<JsonValue> bounded_elements(const JsonValue& array) {
  std::vector<JsonValue> values = array.elements();
  if (values.size() > kMostRows) array.refuse(formatted("has more than {} rows", kMostRows));
  return values;
}

std::vector<std::string> texts(const JsonValue& array) {
  std::vector<std::string> found;
  for (const JsonValue& each : bounded_elements(array)) found.push_back(each.text());
  return found;
}

// The members of an object that stands for a table by names.
std::vector<std::pair<std::string, JsonValue>> bounded_members(const JsonValue& object) {
  constexpr std::size_t kMostMembers = 100;
  if (!object.raw().is_object()) object.refuse("is not a JSON object");
  if (object.raw().size() > kMostMembers) {
    object.refuse(formatted("has more than {} members", kMostMembers));
  }
  std::vector<std::pair<std::string, JsonValue>> members;
  for (const auto& [name, ignored] : object.raw().items()) {
    members.emplace_back(name, object.require(name));
  }
  return members;
}

FirstCall first_call(const std::string& peer, const JsonValue& us) {
  const auto figure = [&](const char* step) { return positive(us.require(step)); };
  return {peer,
          figure("import_torch"),
          figure("cuda_context"),
          figure("first"),
          figure("second"),
          figure("later"),
          figure("next_problem"),
          static_cast<int>(std::min(figure("samples"), 1e6))};
}

// What the benchmarks of bench_cold_start.cpp stand for.
struct KnownStep {
  const char* name;
  const char* what;
  const char* note;
};
constexpr KnownStep kKnownSteps[] = {
    {"open_and_look_up", "open the database, find a winner", "10,000 winners in the database"},
    {"open_and_look_up_in_new_process", "the same in a new process", "what a program meets first"},
    {"open_shipped_and_look_up", "the same, shipped winners only", "no database of the user's"},
    {"first_launch", "first call, stored cubin", "loads the cubin and launches it"},
    {"next_launch", "second problem, same kernel", "the cubin is loaded already"},
    {"first_miss", "first call, no winner of its own", "reads all winners for the nearest one"},
    {"first_compile", "first call, compiled by NVRTC", "no stored cubin"},
};

ColdStep step_of(const std::string& name, double us) {
  const std::string plain = name.substr(0, name.find('/'));
  for (const KnownStep& known : kKnownSteps) {
    if (plain == known.name) return {known.what, us, known.note, ""};
  }
  // A name that nobody chose for a reader may be long; the whole one is in the table.
  constexpr std::size_t kLongest = 24;
  return {plain.size() <= kLongest ? plain : plain.substr(0, kLongest - 3) + "...", us, plain, ""};
}

ReferenceRow reference_row(const JsonValue& entry) {
  ReferenceRow row;
  row.kernel = entry.require("kernel").text();
  const std::string problem = entry.require("problem").text();
  row.problem = canonical_problem(problem).value_or(problem);
  row.us = positive(entry.require("us"));
  row.tflops = positive_member(entry, "tflops");
  row.gb_s = positive_member(entry, "gb_s");
  row.call_bytes = positive_member(entry, "call_bytes");
  if (const auto error = entry.member("err_rms")) row.err_rms = error->number();
  return row;
}

// The canonical form of a problem's text.
std::string problem_text(const JsonValue& value) {
  if (const auto text = canonical_problem(value.text())) return *text;
  value.refuse("is no problem that this version understands");
}

WorkTable work_table(const JsonValue& entry) {
  WorkTable table;
  table.title = entry.require("title").text();
  table.machine = entry.require("machine").text();
  table.note = text_member(entry, "note");
  table.picture = text_member(entry, "picture");
  if (table.picture.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") != std::string::npos) {
    entry.require("picture").refuse("is more than small letters and hyphens");
  }
  table.first_column = entry.require("first_column").text();
  table.columns = texts(entry.require("columns"));
  if (const auto problems = entry.member("problems")) {
    for (const JsonValue& each : bounded_elements(*problems)) {
      table.problems.push_back(problem_text(each));
    }
    if (table.problems.size() > table.columns.size()) problems->refuse("has more than the columns");
  }
  for (const JsonValue& each : bounded_elements(entry.require("rows"))) {
    const std::string shows = text_member(each, "shows");
    if (!shows.empty() && shows != "memory") each.require("shows").refuse("is not \"memory\"");
    table.rows.push_back({each.require("label").text(), text_member(each, "kernel"), !shows.empty(),
                          texts(each.require("cells"))});
    if (table.rows.back().cells.size() != table.columns.size()) {
      each.refuse(formatted("has not one cell for each of the {} columns", table.columns.size()));
    }
  }
  return table;
}

}  // namespace

std::optional<double> MeasuredCeilings::find(const std::string& name) const {
  const auto found = measured.find(name);
  return found == measured.end() ? std::nullopt : std::optional(found->second.median);
}

MeasuredCeilings read_ceilings(const fs::path& file) {
  const nlohmann::json parsed = read_json_file(file);
  const JsonValue document(parsed, file.string());
  require_schema(document);
  MeasuredCeilings ceilings;
  ceilings.device = device_name(document);
  ceilings.driver = text_member(document, "driver");
  ceilings.clock_mhz = positive_member(document, "clock_mhz");
  const JsonValue measured = document.require("measured");
  if (!measured.raw().is_object() || measured.raw().size() > 100) {
    measured.refuse("is no object of rates; 'vitune devices --measure --json' writes one");
  }
  for (const auto& [name, ignored] : measured.raw().items()) {
    const auto rate = measured.member(name);
    if (!rate) continue;
    const Interval interval{positive(rate->require("median")), positive(rate->require("low")),
                            positive(rate->require("high"))};
    ceilings.measured.emplace(name, interval);
  }
  return ceilings;
}

ColdStart read_cold_start(const fs::path& file) {
  const TimingFile timed = read_timing_file(file);
  if (timed.format != TimingFormat::kGoogleBenchmark) {
    throw Error(ErrorCode::kUsage,
                file.string() + ": is not what benchmarks/bench_cold_start --benchmark_out wrote");
  }
  ColdStart start;
  start.device = timed.device;
  const nlohmann::json parsed = read_json_file(file);
  if (const auto context = JsonValue(parsed, file.string()).member("context")) {
    start.date = text_member(*context, "date").substr(0, 10);
    const std::string driver = text_member(*context, "vitune_driver");
    start.stand_in = !driver.empty() && driver != "CUDA";
  }
  for (const TimedRow& row : timed.rows) {
    if (row.name.starts_with("peak_memory")) continue;
    start.steps.push_back(step_of(row.name, row.figure.median_us));
  }
  return start;
}

const FirstCall* FirstCalls::find(const std::string& peer) const {
  const auto found = std::find_if(peers.begin(), peers.end(),
                                  [&](const FirstCall& call) { return call.peer == peer; });
  return found == peers.end() ? nullptr : &*found;
}

FirstCalls read_first_calls(const fs::path& file) {
  const nlohmann::json parsed = read_json_file(file);
  const JsonValue document(parsed, file.string());
  const auto command = document.member("command");
  if (!command || command->text() != "first_calls") {
    document.refuse("is not what benchmarks/peers/run.py --first-calls wrote");
  }
  require_schema(document);
  FirstCalls calls;
  calls.device = device_name(document);
  calls.date = text_member(document, "date").substr(0, 10);
  calls.problem = document.require("problem").text();
  calls.next_problem = document.require("next_problem").text();
  for (const auto& [peer, us] : bounded_members(document.require("us"))) {
    calls.peers.push_back(first_call(peer, us));
  }
  for (const char* kind : {"refused", "failed"}) {
    const auto reasons = document.member(kind);
    if (!reasons) continue;
    for (const auto& [peer, why] : bounded_members(*reasons)) calls.left_out[peer] = why.text();
  }
  return calls;
}

std::string ReferenceResults::place() const { return date.empty() ? device : device + ", " + date; }

const ReferenceRow* ReferenceResults::find(const std::string& kernel,
                                           const std::string& problem) const {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ReferenceRow& row) {
    return row.kernel == kernel && row.problem == problem;
  });
  return found == rows.end() ? nullptr : &*found;
}

ReferenceResults read_reference(const fs::path& file) {
  const nlohmann::json parsed = read_json_file(file);
  const JsonValue document(parsed, file.string());
  require_schema(document);
  ReferenceResults results;
  results.device = device_name(document);
  results.date = text_member(document, "date").substr(0, 10);
  for (const JsonValue& entry : bounded_elements(document.require("rows"))) {
    results.rows.push_back(reference_row(entry));
  }
  return results;
}

std::vector<Work> read_works(const fs::path& file) {
  const nlohmann::json parsed = read_json_file(file);
  const JsonValue document(parsed, file.string());
  require_schema(document);
  std::vector<Work> works;
  for (const JsonValue& entry : bounded_elements(document.require("works"))) {
    Work work{entry.require("title").text(),
              entry.require("source").text(),
              text_member(entry, "note"),
              {}};
    for (const JsonValue& table : bounded_elements(entry.require("tables"))) {
      work.tables.push_back(work_table(table));
    }
    works.push_back(std::move(work));
  }
  return works;
}

}  // namespace vitune
