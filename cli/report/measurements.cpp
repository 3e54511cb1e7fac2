// cli/report/measurements.cpp -- Pairs times by problem, over the readers of vitune compare.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/measurements.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/arguments/json_file.h"
#include "cli/compare/timing_figures.h"
#include "cli/compare/timing_files.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::array<Objective, 2> kKinds = {Objective::kCold, Objective::kWarm};
constexpr const char* kOwnPrefix = "vitune";
constexpr double kMostBytes = 1e15;

// In the order of their paints; two programs name some of them differently.
struct KnownPeer {
  const char* name;
  const char* label;
  Paint paint;
  Mark mark;
};
constexpr KnownPeer kKnownPeers[] = {
    {"cudnn", "cuDNN", Paint::kPeer0, Mark::kSquare},
    {"flash", "FlashAttention-2", Paint::kPeer1, Mark::kTriangle},
    {"flash2", "FlashAttention-2", Paint::kPeer1, Mark::kTriangle},
    {"effic", "memory-efficient", Paint::kPeer2, Mark::kDiamond},
    {"efficient", "memory-efficient", Paint::kPeer2, Mark::kDiamond},
    {"fa3", "FlashAttention-3", Paint::kPeer3, Mark::kTriangle},
    {"fa4", "FlashAttention-4", Paint::kPeer4, Mark::kTriangle},
    {"flex", "FlexAttention", Paint::kPeer4, Mark::kDiamond},
    {"triton", "Triton", Paint::kPeer5, Mark::kRing},
    {"compiled", "torch.compile", Paint::kPeer3, Mark::kDiamond},
    {"eager", "PyTorch eager", Paint::kPlain, Mark::kCross},
};

const KnownPeer* find_peer(const std::string& name) {
  const auto* found = std::find_if(std::begin(kKnownPeers), std::end(kKnownPeers),
                                   [&](const KnownPeer& peer) { return name == peer.name; });
  return found == std::end(kKnownPeers) ? nullptr : found;
}

bool is_rival(const std::string& peer) { return !peer.starts_with(kOwnPrefix) && peer != "eager"; }

std::size_t index_of(Objective kind) { return kind == Objective::kCold ? 0 : 1; }

// Gathers rows of several peers under their problems, in the order of the first file.
class Gatherer {
 public:
  explicit Gatherer(Measurements& into) : into_(into) {}

  void add(const std::string& peer, const TimedRow& row) {
    if (row.kind != "cold" && row.kind != "warm") return;
    ProblemTimes* times = find(row);
    if (times == nullptr) return;
    times->us[peer][row.kind == "cold" ? 0 : 1] = row.figure.median_us;
  }
  ProblemTimes* find(const TimedRow& row) {
    if (refused_.contains(row.problem)) return nullptr;
    if (const auto known = places_.find(row.problem); known != places_.end()) {
      return &into_.problems[known->second];
    }
    ProblemTimes times;
    times.name = row.name;
    try {
      times.problem = AttentionProblem::parse(row.problem);
    } catch (const Error&) {
      refused_.insert(row.problem);
      into_.notes.push_back(row.name + ": its problem is not understood, so it is left out");
      return nullptr;
    }
    places_[row.problem] = into_.problems.size();
    into_.problems.push_back(std::move(times));
    return &into_.problems.back();
  }

 private:
  Measurements& into_;
  std::map<std::string, std::size_t> places_;
  std::set<std::string> refused_;
};

void require_times(const Measurements& measurements, const std::filesystem::path& file) {
  const bool any = std::any_of(
      measurements.problems.begin(), measurements.problems.end(), [](const ProblemTimes& times) {
        return times.ours(Objective::kCold) || times.ours(Objective::kWarm);
      });
  if (any) return;
  throw Error(ErrorCode::kUsage, file.string() +
                                     ": holds no time of vitune; measure again, or "
                                     "give another file");
}

// The day of an ISO 8601 time.
std::string day_of(const std::string& time) { return time.substr(0, 10); }

std::vector<std::string> peer_names(const JsonValue& document) {
  std::set<std::string> names;
  for (const JsonValue& row : document.require("rows").elements()) {
    const JsonValue us = row.require("us");
    if (!us.raw().is_object()) us.refuse("is not a JSON object");
    for (const auto& [name, ignored] : us.raw().items()) names.insert(name);
  }
  constexpr std::size_t kMost = 64;
  if (names.size() > kMost) document.refuse(formatted("names more than {} peers", kMost));
  return {names.begin(), names.end()};
}

// What a row of benchmarks/peers says beside times.
void read_row(const JsonValue& row, ProblemTimes& times) {
  const auto floor = row.member("floor_us");
  if (floor && floor->number() > 0) times.floor_us = floor->number();
  const auto memory = row.member("memory");
  if (!memory) return;
  if (!memory->raw().is_object()) memory->refuse("is not a JSON object");
  for (const auto& [peer, ignored] : memory->raw().items()) {
    const double bytes = memory->require(peer).number();
    if (!times.us.contains(peer)) continue;  // it has no time either
    if (bytes < 0 || bytes > kMostBytes) memory->require(peer).refuse("is no size in bytes");
    times.memory[peer] = bytes;
  }
}

void add_stored_peers(Measurements& into, const std::vector<NamedProblem>& known) {
  for (ProblemTimes& times : into.problems) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const NamedProblem& named) {
      return named.problem->text() == times.problem.text();
    });
    if (found == known.end()) {
      into.notes.push_back(times.name + ": no times of peers are stored for it");
      continue;
    }
    times.floor_us = found->floor_us;
    for (const PeerTime& peer : found->peers) times.us[peer.peer] = {peer.cold_us, peer.warm_us};
  }
}

}  // namespace

std::optional<double> ProblemTimes::time(const std::string& peer, Objective kind) const {
  const auto found = us.find(peer);
  return found == us.end() ? std::nullopt : found->second[index_of(kind)];
}

std::optional<double> ProblemTimes::peak_memory(const std::string& peer) const {
  const auto found = memory.find(peer);
  return found == memory.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> ProblemTimes::ours(Objective kind) const { return time(kOwnPeer, kind); }

std::optional<PeerFigure> ProblemTimes::best_peer(Objective kind) const {
  std::optional<PeerFigure> best;
  for (const auto& [peer, times] : us) {
    const auto us_of_peer = times[index_of(kind)];
    if (is_rival(peer) && us_of_peer && (!best || *us_of_peer < best->us)) {
      best = PeerFigure{peer, *us_of_peer};
    }
  }
  return best;
}

std::optional<double> ProblemTimes::speed_up(Objective kind) const {
  const auto mine = ours(kind);
  const auto best = best_peer(kind);
  if (!mine || !best) return std::nullopt;
  return best->us / *mine;
}

std::string Measurements::place() const {
  return device + (replayed ? ", replayed from a recording" : "") +
         (date.empty() ? "" : ", " + date);
}

const ProblemTimes* Measurements::find(const AttentionProblem& problem) const {
  const auto found = std::find_if(problems.begin(), problems.end(), [&](const ProblemTimes& times) {
    return times.problem == problem;
  });
  return found == problems.end() ? nullptr : &*found;
}

std::vector<std::string> Measurements::peers() const {
  std::set<std::string> names;
  for (const ProblemTimes& times : problems) {
    for (const auto& [peer, figures] : times.us) {
      if (!peer.starts_with(kOwnPrefix)) names.insert(peer);
    }
  }
  std::vector<std::string> ordered;
  for (const KnownPeer& known : kKnownPeers) {
    if (names.erase(known.name) > 0) ordered.emplace_back(known.name);
  }
  ordered.insert(ordered.end(), names.begin(), names.end());
  return ordered;
}

Measurements read_peer_measurements(const std::filesystem::path& file) {
  const nlohmann::json parsed = read_json_file(file);
  const JsonValue document(parsed, file.string());
  const auto command = document.member("command");
  if (!command || command->text() != "peers") {
    document.refuse("is no result of benchmarks/peers; 'make peers' makes one");
  }
  Measurements measurements;
  if (const auto date = document.member("date")) measurements.date = day_of(date->text());
  Gatherer gatherer(measurements);
  for (const std::string& peer : peer_names(document)) {
    const TimingFile timed = read_timing_file(file, peer);
    measurements.device = timed.device;
    for (const TimedRow& row : timed.rows) gatherer.add(peer, row);
  }
  for (const JsonValue& row : document.require("rows").elements()) {
    TimedRow named;
    named.name = row.require("name").text();
    const std::string text = row.require("problem").text();
    named.problem = canonical_problem(text).value_or(text);
    ProblemTimes* times = gatherer.find(named);
    if (times != nullptr) read_row(row, *times);
  }
  require_times(measurements, file);
  return measurements;
}

Measurements read_tune_measurements(const std::filesystem::path& file,
                                    const std::vector<NamedProblem>& known) {
  const TimingFile timed = read_timing_file(file);
  if (timed.format != TimingFormat::kTune && timed.format != TimingFormat::kBench) {
    throw Error(ErrorCode::kUsage, formatted("{} is of {}: give what 'vitune tune --json' wrote",
                                             file.string(), timing_format_name(timed.format)));
  }
  Measurements measurements;
  measurements.device = timed.device;
  measurements.replayed = timed.replayed;
  measurements.stored_peers = true;
  Gatherer gatherer(measurements);
  for (const TimedRow& row : timed.rows) gatherer.add(kOwnPeer, row);
  const nlohmann::json parsed = read_json_file(file);
  for (const JsonValue& result : JsonValue(parsed, file.string()).require("results").elements()) {
    const auto winner = result.member("winner");
    const auto tuned_at = winner ? winner->member("tuned_at") : std::nullopt;
    if (tuned_at) measurements.date = std::max(measurements.date, day_of(tuned_at->text()));
  }
  add_stored_peers(measurements, known);
  require_times(measurements, file);
  return measurements;
}

std::string peer_label(const std::string& peer) {
  if (peer == kOwnPeer) return kOwnPeer;
  if (peer == "vitune_default") return "vitune, untuned";
  const KnownPeer* known = find_peer(peer);
  return known != nullptr ? known->label : peer;
}

PeerStyle peer_style(const std::string& peer, std::size_t place) {
  if (const KnownPeer* known = find_peer(peer)) return {known->paint, known->mark};
  constexpr Paint kOthers[] = {Paint::kPeer3, Paint::kPeer4, Paint::kPeer5};
  return {kOthers[place % std::size(kOthers)], Mark::kRing};
}

SpeedUps speed_ups(const Measurements& measurements, Objective kind) {
  SpeedUps result;
  double logs = 0;
  for (const ProblemTimes& times : measurements.problems) {
    const auto ratio = times.speed_up(kind);
    if (!ratio) continue;
    logs += std::log(*ratio);
    ++(*ratio < 1 ? result.slower : result.faster);
  }
  if (result.count() > 0) result.mean = std::exp(logs / result.count());
  return result;
}

}  // namespace vitune
