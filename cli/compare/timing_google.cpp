// cli/compare/timing_google.cpp -- Times of Google Benchmark documents: repetitions, else their
// aggregates.
// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <map>

#include "cli/arguments/json_file.h"
#include "cli/compare/timing_figures.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// All that a document says of one benchmark.
struct Run {
  std::string label;
  std::vector<double> samples_us;            // its repetitions
  std::map<std::string, double> aggregates;  // "median" -> microseconds
  double repetitions = 0;
  std::string error;
};

double unit_us(const JsonValue& entry) {
  const auto unit = entry.member("time_unit");
  const std::string name = unit ? unit->text() : "ns";
  const std::map<std::string, double> known = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  const auto found = known.find(name);
  if (found == known.end()) unit->refuse("is none of ns, us, ms, s");
  return found->second;
}

void add_aggregate(const JsonValue& entry, Run& run) {
  const std::string name = entry.require("aggregate_name").text();
  // Others are shares or the coefficients of a fit, and no times.
  if (name != "median" && name != "mean" && name != "stddev") return;
  const double us = entry.require("real_time").number() * unit_us(entry);
  if (name != "stddev") positive_us(entry.require("real_time"), unit_us(entry));
  if (us >= 0) run.aggregates[name] = us;
  if (const auto count = entry.member("repetitions")) run.repetitions = count->number();
}

void add_entry(const JsonValue& entry, Run& run) {
  if (const auto label = entry.member("label")) run.label = label->text();
  const auto failed = entry.member("error_occurred");
  if (failed && failed->flag()) {
    const auto message = entry.member("error_message");
    run.error = message ? message->text() : "failed";
    return;
  }
  const auto type = entry.member("run_type");
  if (type && type->text() == "aggregate") {
    add_aggregate(entry, run);
  } else {
    run.samples_us.push_back(positive_us(entry.require("real_time"), unit_us(entry)));
  }
}

std::optional<TimedFigure> figure_of(Run& run) {
  if (!run.samples_us.empty()) return figure_of_samples(std::move(run.samples_us));
  const auto middle = run.aggregates.contains("median") ? run.aggregates.find("median")
                                                        : run.aggregates.find("mean");
  if (middle == run.aggregates.end()) return std::nullopt;
  const auto deviation = run.aggregates.find("stddev");
  const double count = deviation == run.aggregates.end() ? 0 : run.repetitions;
  const double relative = count > 0 ? deviation->second / middle->second : 0;
  return figure_of_deviation(middle->second, relative, count);
}

// The fields in the name and the label of a whole call.
struct MeasuredCall {
  std::string peer, kind, problem_name, problem;
};

std::string without_suffixes(std::string name) {
  for (const char* suffix : {"/iterations:", "/repeats:", "/manual_time"}) {
    name.erase(std::min(name.find(suffix), name.size()));
  }
  return name;
}

bool is_kind(std::string_view word) { return word == "cold" || word == "warm"; }

// "linear/bf16 m=6304 n=3072 k=768/cold/iterations:1/repeats:30/manual_time" of
// benchmarks/bench_operators, whose labels are what people call the problems.
std::optional<MeasuredCall> call_of_operator(const std::string& name, const std::string& label) {
  const std::size_t first = name.find('/'), last = name.rfind('/');
  if (last == std::string::npos || first == last || !is_kind(name.substr(last + 1))) return {};
  const std::string text = name.substr(first + 1, last - first - 1);
  const auto problem = canonical_problem(name.substr(0, first) + ' ' + text);
  if (!problem) return {};
  return MeasuredCall{"vitune", name.substr(last + 1), label.empty() ? *problem : label, *problem};
}

// "vitune/cold/ViT-B/16@224 b32/iterations:1/repeats:30/manual_time" of files from when peers ran
// beside vitune, whose labels are problems.
std::optional<MeasuredCall> call_of_peer(const std::string& name, const std::string& label) {
  const std::size_t first = name.find('/');
  const std::size_t second = first == std::string::npos ? first : name.find('/', first + 1);
  if (second == std::string::npos) return {};
  const std::string kind = name.substr(first + 1, second - first - 1);
  const auto problem = canonical_problem(label);
  if (!problem || !is_kind(kind)) return {};
  return MeasuredCall{name.substr(0, first), kind, name.substr(second + 1), *problem};
}

TimedRow row_of(const std::string& run_name, const std::string& label, const std::string& peer,
                bool& other_peer) {
  const std::string name = without_suffixes(run_name);
  auto call = call_of_operator(name, label);
  if (!call) call = call_of_peer(name, label);
  if (!call) return {run_name, "", "time", {}};
  other_peer = call->peer != peer;
  return {call->problem_name, call->problem, call->kind, {}};
}

void read_device(const JsonValue& document, TimingFile& file) {
  const auto context = document.member("context");
  if (!context) return;
  for (const char* name : {"vitune_device", "host_name"}) {
    const auto device = context->member(name);
    if (!device || !file.device.empty()) continue;
    file.device = device->text();
  }
  if (const auto key = context->member("vitune_device_key")) file.device_key = key->text();
}

}  // namespace

void read_google_benchmark(const JsonValue& document, const std::string& peer, TimingFile& file) {
  read_device(document, file);
  std::map<std::string, std::size_t> places;
  std::vector<std::pair<std::string, Run>> runs;  // in the document's order
  for (const JsonValue& entry : document.require("benchmarks").elements()) {
    const auto run_name = entry.member("run_name");
    const std::string name = (run_name ? *run_name : entry.require("name")).text();
    const auto [place, added] = places.emplace(name, runs.size());
    if (added) runs.emplace_back(name, Run{});
    add_entry(entry, runs[place->second].second);
  }
  bool any_other = false;
  for (auto& [name, run] : runs) {
    bool other_peer = false;
    TimedRow row = row_of(name, run.label, peer, other_peer);
    any_other |= other_peer;
    if (other_peer) continue;
    const auto figure = figure_of(run);
    if (!figure) {
      file.without_time.push_back(row.name + ": " + (run.error.empty() ? "no time" : run.error));
      continue;
    }
    row.figure = *figure;
    file.rows.push_back(std::move(row));
  }
  if (any_other && file.rows.empty() && file.without_time.empty()) {
    throw Error(ErrorCode::kUsage, formatted("{}: has no times of peer '{}'", file.path, peer));
  }
}

}  // namespace vitune
