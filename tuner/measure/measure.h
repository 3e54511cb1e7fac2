// tuner/measure/measure.h -- How long a kernel takes: sampling until the figure is good enough, and
// racing.
//
// Operator-neutral: a kernel is something that can be launched. The method is nvbench's: the L2 is
// emptied by reading before each cold call, sampling stops by relative noise, and a figure taken
// while the clocks moved is taken again. See docs/measuring.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "db/records.h"
#include "tuner/worker/protocol.h"

namespace vitune {

// Launches the kernel once, asynchronously.
using Launch = std::function<void()>;

// Times launches on one device. Handles are valid until clear().
class LaunchTimer {
 public:
  using Handle = std::size_t;
  virtual ~LaunchTimer() = default;
  virtual Handle add(Launch launch) = 0;
  virtual void clear() = 0;
  // Microseconds of `count` calls, each on an emptied L2.
  virtual std::vector<double> cold(Handle handle, int count) = 0;
  // Makes ready for warm(): `call_us` is about what a call takes.
  virtual void prepare_warm(Handle handle, double call_us) = 0;
  // Microseconds per call of `count` replays of a few calls in a row, after one that is not
  // counted.
  virtual std::vector<double> warm(Handle handle, int count) = 0;
  // Microseconds that a fixed number of clocks takes.
  virtual double anchor() = 0;
};

// An anchor this far from another means that the clocks moved.
inline constexpr double kAnchorTolerance = 0.03;
// Calls before the first sample, the same for every kernel.
inline constexpr int kDiscardedCalls = 2;

// Measures one kernel, again (three times at most) where the clocks moved; low_confidence says that
// they never stood still.
Measurement measure(LaunchTimer& timer, const Launch& launch, const MeasureEffort& effort);

struct RaceTimes {
  // [contestant][round] microseconds
  std::vector<std::vector<double>> cold_us;
  std::vector<std::vector<double>> warm_us;
  bool low_confidence = false;
};

// Times every contestant once per round, in a fresh order drawn from `seed`. Rounds in which the
// anchor differs from the median of all rounds are measured again, at most rounds / 2 times in all;
// low_confidence says that some still differ.
RaceTimes race(LaunchTimer& timer, const std::vector<Launch>& contestants, int rounds,
               std::uint64_t seed);

}  // namespace vitune
