// tuner/measure/race.h -- Who wins the final race, and by how much.
//
// Near ties decide most winners, and a coin flip between equals would make each tune store another
// kernel. So a lead counts only if its interval lies above the width of a tie; among equals the
// order is: whoever is clearly faster by the other objective (warm calls where cold ones decide,
// and the other way round), the previous winner, the default, fewer registers, the smaller
// canonical text. Simulated on recorded spaces the width costs a winner 0.1 % in the mean and gives
// the same winner again in nine tunes of ten or more
// (docs/lab/2026-11-30-the-same-winner-again.md).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "db/records.h"
#include "tuner/measure/statistics.h"

namespace vitune {

// Contestants this close, in percent, are equals, and those of which the interval cannot tell.
inline constexpr double kTiePercent = 1.0;

struct RaceEntry {
  Config config;
  bool is_default = false;
  bool is_previous = false;  // the winner stored before this run
  int registers = 0;         // of a thread of its kernel
};

// Measurements of a race; entries in the order of the contestants.
struct RaceResult {
  TrialStatus status = TrialStatus::kOk;
  std::string reason;
  std::vector<Measurement> measurements;
  // [contestant][round] microseconds; empty where only figures are known (a replay).
  std::vector<std::vector<double>> cold_us;
  std::vector<std::vector<double>> warm_us;
};

struct RaceDecision {
  std::size_t winner = 0;
  std::optional<std::size_t> runner_up;
  Interval lead;  // how much slower the runner-up is, percent of the winner's time
  // True if every contestant is either slower than the fastest beyond doubt or shown to be its
  // equal; else more rounds would help.
  bool resolved = true;
};

// How much slower contestant `other` was than `base`, percent.
Interval slowdown_percent(const RaceResult& result, Objective objective, std::size_t base,
                          std::size_t other);

// `entries` must not be empty and match `result`, whose status must be kOk.
RaceDecision decide_race(const std::vector<RaceEntry>& entries, const RaceResult& result,
                         Objective objective);

// Appends the rounds of `more` to `result` (same contestants) and takes its timings anew.
void add_rounds(RaceResult& result, const RaceResult& more);

// Fills result.measurements from the samples; `low_confidence` is copied to each.
void summarise_rounds(RaceResult& result, bool low_confidence);

}  // namespace vitune
