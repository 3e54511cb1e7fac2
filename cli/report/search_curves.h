// cli/report/search_curves.h -- How near each search strategy is to the optimum after how many
// trials.
//
// Replays a recording of a whole space: no GPU, the same strategies as `vitune tune`. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "tuner/recording/recording.h"

namespace vitune {

// After `share_tried` of the space (0..1): the optimum's time over the best time found, 0 if
// nothing has worked yet.
struct CurvePoint {
  double share_tried = 0;
  double low = 0, median = 0, high = 0;  // 10 %, 50 %, 90 % of the seeds
};

struct StrategyCurve {
  std::string strategy;  // as --strategy names it
  std::vector<CurvePoint> points;
  double stopped_at = 1;  // share at which it calls itself converged; the median of the seeds
};

struct SearchCurves {
  std::string name;       // of the problem
  std::size_t space = 0;  // configs
  double optimum_us = 0;  // cold
  std::vector<StrategyCurve> strategies;
};

// Of one recorded problem, over `seeds` seeds; the strategies see what `vitune tune` lets them see,
// the default config first. Throws Error(kInterrupted) once `stop` is set.
SearchCurves search_curves(const Recording& recording, const RecordedProblem& problem, int seeds,
                           const std::atomic<bool>& stop);

// The same over all problems: at each share the quantiles of all problems' medians.
SearchCurves pooled_curves(const std::vector<SearchCurves>& problems);

}  // namespace vitune
