// tuner/loop/final_race.cpp -- Runs the final race of a problem.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/final_race.h"

#include "core/format.h"
#include "tuner/loop/tune_plan.h"

namespace vitune {
namespace {

// Where tensors lie in memory decides more than some configs do, so that each heat has a place of
// its own for them, as long as there are.
constexpr int kRounds = 10;  // of a heat
constexpr int kLeastHeats = 3;
constexpr int kMostHeats = 12;  // while it is undecided
constexpr int kPlaces = 6;
constexpr int kSoloRounds = 5;  // to find out which contestant breaks a race

std::vector<Config> configs_of(const std::vector<RaceEntry>& entries) {
  std::vector<Config> configs;
  for (const RaceEntry& entry : entries) configs.push_back(entry.config);
  return configs;
}

// The figures of the trials in the place of a race that could not be held.
RaceResult from_trials(const TrialBook& book, const SearchSpace& space,
                       const std::vector<RaceEntry>& entries) {
  RaceResult result;
  for (const RaceEntry& entry : entries) {
    Measurement measurement = book.find(*space.find(entry.config))->measurement;
    measurement.low_confidence = true;
    result.measurements.push_back(measurement);
  }
  return result;
}

// Runs each contestant alone; keeps those that survive and fails the others in the book.
std::vector<RaceEntry> survivors(Evaluator& evaluator, TrialBook& book, const SearchSpace& space,
                                 const std::vector<RaceEntry>& entries) {
  std::vector<RaceEntry> kept;
  for (const RaceEntry& entry : entries) {
    const RaceResult solo = evaluator.race({entry.config}, kSoloRounds, 0);
    if (solo.status == TrialStatus::kOk || solo.status == TrialStatus::kOutOfMemory) {
      kept.push_back(entry);
      continue;
    }
    const std::size_t index = *space.find(entry.config);
    Trial trial = *book.find(index);
    trial.status = solo.status;
    trial.reason = "in the final race: " + solo.reason;
    book.put(index, trial);
  }
  return kept;
}

}  // namespace

FinalRace hold_race(Evaluator& evaluator, TrialBook& book, const SearchSpace& space,
                    std::vector<RaceEntry> entries, Objective objective, const LogSink& log_sink) {
  FinalRace race;
  RaceResult result = evaluator.race(configs_of(entries), kRounds, 0);
  if (result.status != TrialStatus::kOk) {
    log(log_sink, LogLevel::kWarning,
        formatted("the final race failed ({}); running its contestants one by one", result.reason));
    entries = survivors(evaluator, book, space, entries);
    if (entries.empty()) return race;
    result = evaluator.race(configs_of(entries), kRounds, 0);
  }
  if (result.status != TrialStatus::kOk) {
    log(log_sink, LogLevel::kWarning,
        formatted("the final race cannot be held ({}); the trials' figures decide", result.reason));
    result = from_trials(book, space, entries);
  }
  race.decision = decide_race(entries, result, objective);
  for (int heat = 1; heat < kMostHeats; ++heat) {
    if (heat >= kLeastHeats && race.decision.resolved) break;
    if (result.cold_us.empty()) break;  // nothing more to learn from figures
    const RaceResult more = evaluator.race(configs_of(entries), kRounds, heat % kPlaces);
    if (more.status != TrialStatus::kOk) break;
    add_rounds(result, more);
    race.decision = decide_race(entries, result, objective);
  }
  race.entries = std::move(entries);
  race.result = std::move(result);
  return race;
}

Winner winner_of(const FinalRace& race, Objective objective, Evaluator& evaluator) {
  const RaceDecision& decision = race.decision;
  Winner winner;
  winner.config = race.entries[decision.winner].config;
  winner.kernel_key = evaluator.key(winner.config);
  winner.objective = objective;
  winner.origin = evaluator.origin();
  winner.measurement = race.result.measurements[decision.winner];
  winner.measurement.low_confidence |= !decision.resolved && !race.result.cold_us.empty();
  if (decision.runner_up) winner.runner_up = race.entries[*decision.runner_up].config;
  winner.lead_percent = decision.lead.median;
  winner.lead_low_percent = decision.lead.low;
  winner.lead_high_percent = decision.lead.high;
  for (std::size_t i = 0; i < race.entries.size(); ++i) {
    if (!race.entries[i].is_default) continue;
    winner.default_us = race.result.measurements[i].by(objective).median_us;
  }
  winner.driver_version = evaluator.device().driver_version;
  winner.compiler_version = evaluator.compiler_version();
  winner.tuned_at = iso_utc_now();
  return winner;
}

}  // namespace vitune
