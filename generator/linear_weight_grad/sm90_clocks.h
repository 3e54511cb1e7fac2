// generator/linear_weight_grad/sm90_clocks.h -- What a weight gradient on wgmma takes, roughly, by
// which its families rank configs, of each other's too.
//
// Constants fit 1,900 configs of 35 layers, timed on an H200 (docs/lab/2026-11-30-weight-gradients-
// in-clusters.md): the config that ranks first takes 4 % more than the best in the mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

struct WeightGradClocks {
  static constexpr double kStart = 800;     // of a launch
  static constexpr double kFinish = 6000;   // of the second kernel
  static constexpr double kRound = 2800;    // a tile's beginning and end
  static constexpr double kBytes = 53;      // of operands that reach an SM in a clock, at most
  static constexpr double kLatency = 2900;  // of a step's operands: what is on its way limits them
  static constexpr double kSumBytes = 10;   // of parts, which an SM writes or reads in a clock
  static constexpr double kMeetBytes = 15;  // of parts, through a cluster
  static constexpr double kTensor = 1.24;   // products over what the tensor cores could do at best

  // A tile's steps. row_sums: of how many rows a step's products with ones are, in the mean.
  static double steps(const GemmSm90& shape, std::int64_t count, double row_sums) {
    const double m = shape.block_m, n = shape.block_n, bytes = (m + n) * 2 * GemmSm90::kDepth;
    const double rate = std::min(kBytes, shape.stages * bytes / kLatency);
    const double products = kTensor * (m * n / 32 + row_sums);
    return kRound + static_cast<double>(count) * std::max(products, bytes / rate);
  }
  static double rounds(std::int64_t ctas, double at_once) {
    return std::ceil(static_cast<double>(ctas) / std::max(std::floor(at_once), 1.0));
  }
};

}  // namespace vitune
