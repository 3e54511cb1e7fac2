// tuner/measure/measure.cpp -- The stop rule, the race, and noticing clocks that move.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>

#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

constexpr int kAttempts = 3;
constexpr int kMinBatch = 5;

bool differs(double anchor, double reference) {
  return std::abs(anchor / reference - 1) > kAnchorTolerance;
}

// Half the interval's width relative to the median.
double noise_of(const Timing& timing) {
  return 0.5 * (timing.high_us - timing.low_us) / timing.median_us;
}

Timing sample_cold(LaunchTimer& timer, LaunchTimer::Handle handle, const MeasureEffort& effort) {
  timer.cold(handle, kDiscardedCalls);
  const int least = std::max(effort.min_samples, 1), most = std::max(effort.max_samples, least);
  std::vector<double> samples = timer.cold(handle, least);
  Timing timing = timing_of(samples);
  while (timing.samples < most && !(noise_of(timing) < effort.target_noise)) {
    // Growing batches: each check of the rule costs a wait for the device.
    const int batch = std::min(std::max(kMinBatch, timing.samples / 2), most - timing.samples);
    const std::vector<double> more = timer.cold(handle, batch);
    samples.insert(samples.end(), more.begin(), more.end());
    timing = timing_of(samples);
  }
  return timing;
}

// Registers launches with a timer and takes them out again.
class Registration {
 public:
  explicit Registration(LaunchTimer& timer) : timer_(timer) {}
  ~Registration() { timer_.clear(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  LaunchTimer& timer_;
};

struct Round {
  double before = 0, after = 0;  // anchors
  std::vector<double> cold, warm;
};

Round run_round(LaunchTimer& timer, const std::vector<LaunchTimer::Handle>& handles,
                std::mt19937_64& random) {
  std::vector<std::size_t> order(handles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Round round;
  round.cold.resize(handles.size());
  round.warm.resize(handles.size());
  round.before = timer.anchor();
  for (const std::size_t i : order) {
    round.cold[i] = timer.cold(handles[i], 1).at(0);
    round.warm[i] = timer.warm(handles[i], 1).at(0);
  }
  round.after = timer.anchor();
  return round;
}

// The first round whose anchors differ from the median of all.
std::optional<std::size_t> moved_round(const std::vector<Round>& rounds) {
  std::vector<double> anchors;
  for (const Round& round : rounds) anchors.insert(anchors.end(), {round.before, round.after});
  const double middle = median(anchors);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (differs(rounds[i].before, middle) || differs(rounds[i].after, middle)) return i;
  }
  return std::nullopt;
}

RaceTimes times_of(const std::vector<Round>& rounds, std::size_t contestants) {
  RaceTimes times;
  times.cold_us.resize(contestants);
  times.warm_us.resize(contestants);
  for (const Round& round : rounds) {
    for (std::size_t i = 0; i < contestants; ++i) {
      times.cold_us[i].push_back(round.cold[i]);
      times.warm_us[i].push_back(round.warm[i]);
    }
  }
  return times;
}

}  // namespace

Measurement measure(LaunchTimer& timer, const Launch& launch, const MeasureEffort& effort) {
  const Registration registration(timer);
  const LaunchTimer::Handle handle = timer.add(launch);
  Measurement result;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double before = timer.anchor();
    result.cold = sample_cold(timer, handle, effort);
    if (attempt == 0) timer.prepare_warm(handle, result.cold.median_us);
    result.warm = timing_of(timer.warm(handle, std::max(effort.warm_replays, 1)));
    result.low_confidence = differs(timer.anchor(), before);
    if (!result.low_confidence) break;
  }
  return result;
}

RaceTimes race(LaunchTimer& timer, const std::vector<Launch>& contestants, int rounds,
               std::uint64_t seed) {
  const Registration registration(timer);
  std::vector<LaunchTimer::Handle> handles;
  for (const Launch& launch : contestants) {
    handles.push_back(timer.add(launch));
    const std::vector<double> first = timer.cold(handles.back(), kDiscardedCalls);
    timer.prepare_warm(handles.back(), first.back());
  }
  std::mt19937_64 random(seed);
  std::vector<Round> measured;
  for (int i = 0; i < std::max(rounds, 1); ++i)
    measured.push_back(run_round(timer, handles, random));
  std::optional<std::size_t> moved = moved_round(measured);
  for (int extra = 0; moved && extra < rounds / 2; ++extra) {
    measured[*moved] = run_round(timer, handles, random);
    moved = moved_round(measured);
  }
  RaceTimes times = times_of(measured, contestants.size());
  times.low_confidence = moved.has_value();
  return times;
}

}  // namespace vitune
