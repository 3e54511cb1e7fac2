// cli/compare/timing_files.cpp -- Tells the formats apart, and reads those of vitune and of the
// peers.
// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/timing_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/arguments/json_file.h"
#include "cli/compare/timing_figures.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/problem.h"

namespace vitune {
namespace {

constexpr std::size_t kMaxRows = 100'000;
constexpr std::size_t kMaxPeerName = 100;
constexpr std::size_t kFewSamples = 6;
constexpr double kMostUs = 1e12;
constexpr double kNormal95 = 1.96;             // half of a 95 % interval, in standard errors
constexpr double kMedianError = 1.2533;        // sqrt(pi / 2): of a median, to that of a mean
constexpr double kDecilesDeviations = 2.5631;  // between p10 and p90 of a normal distribution

const char* const kKinds[] = {"cold", "warm"};

// winner.cold of a tune or bench document; nothing where that was not measured.
std::optional<TimedFigure> stored_figure(const JsonValue& timing) {
  if (timing.require("median_us").number() == 0) return std::nullopt;
  TimedFigure figure;
  figure.median_us = positive_us(timing.require("median_us"));
  const double samples = timing.require("samples").number();
  const Interval bounds{figure.median_us, positive_us(timing.require("low_us")),
                        positive_us(timing.require("high_us"))};
  if (bounds.low > bounds.median || bounds.median > bounds.high) {
    timing.refuse("its interval does not hold its median");
  }
  if (samples >= 2) figure.bounds = bounds;
  figure.few = samples < kFewSamples;
  return figure;
}

// The names of one entry of a file; every reader begins with them.
TimedRow named_row(const JsonValue& entry) {
  TimedRow row;
  row.name = entry.require("name").text();
  if (const auto problem = entry.member("problem")) {
    const std::string text = problem->text();
    row.problem = canonical_problem(text).value_or(text);
  }
  return row;
}

void read_winner(const JsonValue& result, TimingFile& file) {
  TimedRow row = named_row(result);
  const auto winner = result.member("winner");
  if (!winner) {
    const auto message = result.member("message");
    file.without_time.push_back(row.name + ": " + (message ? message->text() : "no winner"));
    return;
  }
  const auto low_confidence = winner->member("low_confidence");
  for (const char* kind : kKinds) {
    const auto figure = stored_figure(winner->require(kind));
    if (!figure) continue;
    row.kind = kind;
    row.figure = *figure;
    row.figure.low_confidence = low_confidence && low_confidence->flag();
    file.rows.push_back(row);
  }
}

// A `vitune bench` document repeats the peers' times of its problems: single figures.
void read_known_peer(const JsonValue& result, const std::string& peer, std::set<std::string>& peers,
                     TimingFile& file) {
  TimedRow row = named_row(result);
  const auto known = result.member("peers");
  if (!known) return;
  for (const JsonValue& each : known->elements()) {
    const std::string name = each.require("peer").text();
    peers.insert(name.substr(0, kMaxPeerName));
    if (name != peer) continue;
    for (const char* kind : kKinds) {
      row.kind = kind;
      row.figure.median_us = positive_us(each.require(std::string(kind) + "_us"));
      file.rows.push_back(row);
    }
  }
}

void read_results(const JsonValue& document, const std::string& peer, std::set<std::string>& peers,
                  TimingFile& file) {
  if (const auto device = document.member("device")) {
    if (const auto name = device->member("name")) file.device = name->text();
    if (const auto key = device->member("key")) file.device_key = key->text();
  }
  const auto origin = document.member("origin");
  file.replayed = origin && origin->text() == "replayed";
  peers.insert(kOwnPeer);
  for (const JsonValue& result : document.require("results").elements()) {
    if (peer == kOwnPeer) {
      read_winner(result, file);
    } else {
      read_known_peer(result, peer, peers, file);
    }
  }
}

// {"cold": 25.4, "cold_p10": 25.1, "cold_p90": 26.0, "cold_samples": 30}: the percentiles may be
// missing; the samples may be their count or an array of them.
std::optional<TimedFigure> peer_figure(const JsonValue& times, const std::string& kind) {
  const auto median = times.member(kind);
  if (!median) return std::nullopt;
  const auto samples = times.member(kind + "_samples");
  if (samples && samples->raw().is_array() && !samples->raw().empty()) {
    std::vector<double> values;
    for (const JsonValue& sample : samples->elements()) values.push_back(positive_us(sample));
    return figure_of_samples(std::move(values));
  }
  const auto p10 = times.member(kind + "_p10"), p90 = times.member(kind + "_p90");
  TimedFigure figure;
  figure.median_us = positive_us(*median);
  if (!p10 || !p90) return figure;
  const double low = positive_us(*p10), high = positive_us(*p90);
  if (low > figure.median_us || figure.median_us > high) {
    times.refuse(formatted("the percentiles of \"{}\" do not hold its median", kind));
  }
  const bool counted = samples && samples->raw().is_number();
  return figure_of_percentiles(figure.median_us, low, high, counted ? samples->number() : 0);
}

std::string why_absent(const JsonValue& entry, const std::string& peer) {
  for (const char* outcome : {"refused", "failed"}) {
    const auto peers = entry.member(outcome);
    const auto reason = peers ? peers->member(peer) : std::nullopt;
    if (reason) return reason->text();
  }
  return "no time of " + peer;
}

void read_peer_row(const JsonValue& entry, const std::string& peer, std::set<std::string>& peers,
                   TimingFile& file) {
  TimedRow row = named_row(entry);
  const JsonValue all = entry.require("us");
  if (!all.raw().is_object()) all.refuse("is not a JSON object");
  for (const auto& [name, ignored] : all.raw().items()) peers.insert(name.substr(0, kMaxPeerName));
  const auto times = all.member(peer);
  bool timed = false;
  if (times && times->raw().is_object()) {
    for (const char* kind : kKinds) {
      const auto figure = peer_figure(*times, kind);
      if (!figure) continue;
      row.kind = kind;
      row.figure = *figure;
      file.rows.push_back(row);
      timed = true;
    }
  }
  if (!timed) file.without_time.push_back(row.name + ": " + why_absent(entry, peer));
}

void read_peers(const JsonValue& document, const std::string& peer, std::set<std::string>& peers,
                TimingFile& file) {
  if (const auto device = document.member("device")) {
    // A name, or an object with the name and the clocks.
    const auto name = device->raw().is_object() ? device->member("name") : device;
    if (name) file.device = name->text();
  }
  if (const auto asked = document.member("peers")) {
    for (const JsonValue& name : asked->elements()) peers.insert(name.text());
  }
  for (const JsonValue& row : document.require("rows").elements()) {
    read_peer_row(row, peer, peers, file);
  }
}

TimingFormat format_of(const JsonValue& document) {
  const auto is_array = [&](const char* name) {
    const auto member = document.member(name);
    return member && member->raw().is_array();
  };
  const auto command = document.member("command");
  if (command && is_array("results")) {
    if (command->text() == "tune") return TimingFormat::kTune;
    if (command->text() == "bench") return TimingFormat::kBench;
  }
  if (command && command->text() == "peers" && is_array("rows")) return TimingFormat::kPeers;
  if (!command && is_array("benchmarks")) return TimingFormat::kGoogleBenchmark;
  document.refuse(
      "holds no times that are understood: give what 'vitune tune --json', 'vitune bench --json', "
      "benchmarks/peers or a Google Benchmark program with --benchmark_out wrote");
}

void require_schema(const JsonValue& document) {
  const double schema = document.require("schema").number();
  if (schema == 1) return;
  document.refuse(formatted("has schema {}: this version reads 1; update vitune", schema));
}

// Each figure is there once: which of two to compare would be a guess.
void refuse_repeats(const TimingFile& file) {
  std::set<std::string> seen;
  for (const TimedRow& row : file.rows) {
    const std::string& identity = row.problem.empty() ? row.name : row.problem;
    if (seen.insert(row.kind + ' ' + identity).second) continue;
    throw Error(ErrorCode::kUsage, formatted("{}: has the {} time of '{}' twice; keep one",
                                             file.path, row.kind, row.name));
  }
}

}  // namespace

std::string timing_format_name(TimingFormat format) {
  switch (format) {
    case TimingFormat::kTune:
      return "vitune tune";
    case TimingFormat::kBench:
      return "vitune bench";
    case TimingFormat::kPeers:
      return "benchmarks/peers";
    case TimingFormat::kGoogleBenchmark:
      break;
  }
  return "Google Benchmark";
}

double positive_us(const JsonValue& value, double scale) {
  const double us = value.number() * scale;
  if (us > 0 && us <= kMostUs) return us;
  value.refuse(formatted("is {} microseconds; a time is above 0 and at most {}", us, kMostUs));
}

TimedFigure figure_of_samples(std::vector<double> samples_us) {
  TimedFigure figure;
  figure.median_us = median(samples_us);
  figure.few = samples_us.size() < kFewSamples;
  if (samples_us.size() >= 2) figure.bounds = median_interval(samples_us);
  figure.samples_us = std::move(samples_us);
  return figure;
}

TimedFigure figure_of_deviation(double median_us, double log_deviation, double count) {
  TimedFigure figure;
  figure.median_us = median_us;
  figure.few = count < kFewSamples;
  if (!(count >= 2)) return figure;
  const double half = kNormal95 * kMedianError * log_deviation / std::sqrt(count);
  figure.bounds = Interval{median_us, median_us * std::exp(-half), median_us * std::exp(half)};
  return figure;
}

TimedFigure figure_of_percentiles(double median_us, double p10_us, double p90_us, double count) {
  if (count >= 2) {
    return figure_of_deviation(median_us, std::log(p90_us / p10_us) / kDecilesDeviations, count);
  }
  TimedFigure figure;
  figure.median_us = median_us;
  figure.few = true;
  figure.bounds = Interval{median_us, p10_us, p90_us};
  return figure;
}

std::optional<std::string> canonical_problem(const std::string& text) {
  try {
    return parse_problem(text)->text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

TimingFile read_timing_file(const std::filesystem::path& path, const std::string& peer) {
  const nlohmann::json parsed = read_json_file(path);
  const JsonValue document(parsed, path.string());
  TimingFile file;
  file.path = path.string();
  file.format = format_of(document);
  std::set<std::string> peers;
  if (file.format == TimingFormat::kGoogleBenchmark) {
    read_google_benchmark(document, peer, file);
  } else {
    require_schema(document);
    file.format == TimingFormat::kPeers ? read_peers(document, peer, peers, file)
                                        : read_results(document, peer, peers, file);
    if (!peers.empty() && !peers.contains(peer)) {
      throw Error(ErrorCode::kUsage, formatted("{}: has no peer '{}'; it has {}", file.path, peer,
                                               joined(peers, ", ")));
    }
  }
  if (file.rows.size() > kMaxRows) {
    document.refuse(formatted("has more than {} times; split it", kMaxRows));
  }
  refuse_repeats(file);
  return file;
}

}  // namespace vitune
