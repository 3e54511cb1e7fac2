// tuner/measure/race.cpp -- Who wins the final race, and by how much.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/race.h"

#include <algorithm>

#include "core/error.h"

namespace vitune {
namespace {

double median_us(const RaceResult& result, Objective objective, std::size_t contestant) {
  return result.measurements[contestant].by(objective).median_us;
}

// The contestant that the others are compared with: none beats it on the paired median. Paired,
// since clocks that drift during the race shift plain medians but not ratios.
std::size_t fastest(const RaceResult& result, Objective objective) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < result.measurements.size(); ++i) {
    if (median_us(result, objective, i) < median_us(result, objective, best)) best = i;
  }
  for (std::size_t i = 0; i < result.measurements.size(); ++i) {
    if (slowdown_percent(result, objective, best, i).median < 0) best = i;
  }
  return best;
}

// Beyond doubt.
bool slower(const Interval& slowdown) { return slowdown.low > kTiePercent; }

// True if the calls that the objective does not look at are faster with `base`, beyond doubt.
bool faster_otherwise(const RaceResult& result, Objective objective, std::size_t base,
                      std::size_t other) {
  const Objective rest = objective == Objective::kCold ? Objective::kWarm : Objective::kCold;
  return slowdown_percent(result, rest, base, other).low > kTiePercent;
}

// True if `a` is to be kept rather than its equal `b`.
bool preferred(const RaceEntry& a, const RaceEntry& b) {
  if (a.is_previous != b.is_previous) return a.is_previous;
  if (a.is_default != b.is_default) return a.is_default;
  if (a.registers != b.registers) return a.registers < b.registers;
  return a.config.text() < b.config.text();
}

}  // namespace

Interval slowdown_percent(const RaceResult& result, Objective objective, std::size_t base,
                          std::size_t other) {
  const auto& samples = objective == Objective::kCold ? result.cold_us : result.warm_us;
  if (!samples.empty()) return paired_slowdown_percent(samples[base], samples[other]);
  return separate_slowdown_percent(result.measurements[base].by(objective),
                                   result.measurements[other].by(objective));
}

RaceDecision decide_race(const std::vector<RaceEntry>& entries, const RaceResult& result,
                         Objective objective) {
  if (entries.empty() || entries.size() != result.measurements.size()) {
    throw Error(ErrorCode::kFailure, "a race's result does not match its contestants");
  }
  const std::size_t best = fastest(result, objective);
  RaceDecision decision;
  decision.winner = best;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i == best) continue;
    const Interval slowdown = slowdown_percent(result, objective, best, i);
    if (slower(slowdown)) continue;
    if (slowdown.high > kTiePercent) decision.resolved = false;
    if (slowdown.median > kTiePercent) continue;
    const bool ahead = faster_otherwise(result, objective, i, decision.winner);
    const bool behind = faster_otherwise(result, objective, decision.winner, i);
    if (ahead || (!behind && preferred(entries[i], entries[decision.winner]))) decision.winner = i;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i == decision.winner) continue;
    const Interval lead = slowdown_percent(result, objective, decision.winner, i);
    if (decision.runner_up && lead.median >= decision.lead.median) continue;
    decision.runner_up = i;
    decision.lead = lead;
  }
  return decision;
}

void add_rounds(RaceResult& result, const RaceResult& more) {
  bool low_confidence = false;
  for (const auto& measurement : result.measurements) low_confidence |= measurement.low_confidence;
  for (const auto& measurement : more.measurements) low_confidence |= measurement.low_confidence;
  for (std::size_t i = 0; i < result.cold_us.size(); ++i) {
    result.cold_us[i].insert(result.cold_us[i].end(), more.cold_us[i].begin(),
                             more.cold_us[i].end());
    result.warm_us[i].insert(result.warm_us[i].end(), more.warm_us[i].begin(),
                             more.warm_us[i].end());
  }
  summarise_rounds(result, low_confidence);
}

void summarise_rounds(RaceResult& result, bool low_confidence) {
  result.measurements.clear();
  for (std::size_t i = 0; i < result.cold_us.size(); ++i) {
    result.measurements.push_back(
        {timing_of(result.cold_us[i]), timing_of(result.warm_us[i]), low_confidence});
  }
}

}  // namespace vitune
