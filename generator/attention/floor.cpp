// generator/attention/floor.cpp -- What an attention problem asks of each unit of a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/floor.h"

#include <cmath>

namespace vitune {
namespace {

// Bytes of keys and values that the tensor cores read from shared memory. One read serves the rows
// of one instruction: 64 of wgmma, and not more of mma.sync, where a warp holds four tiles of 16 at
// most; 256 where a pair of SMs multiplies together.
double shared_bytes(const AttentionProblem& problem, const DeviceInfo& device, double scores) {
  const double rows = device.cc_major == 10 || device.cc_major == 11 ? 256 : 64;
  const double heads = static_cast<double>(problem.batch) * static_cast<double>(problem.heads);
  // A causal group of rows sees part of the keys, which the mean of rows that share a read covers.
  const double reads = problem.causal ? scores / rows
                                      : heads * std::ceil(static_cast<double>(problem.nq) / rows) *
                                            static_cast<double>(problem.nk);
  const double row_bytes =
      static_cast<double>(problem.d) * static_cast<double>(element_bytes(problem.dtype));
  return 2 * reads * row_bytes;
}

}  // namespace

Demand attention_demand(const AttentionProblem& problem, const DeviceInfo& device) {
  // Scale and subtract, maximum, exponential, sum, half a conversion to 16 bits.
  constexpr double kInstructionsPerScore = 4.5;
  const double scores = problem.flops() / (4.0 * static_cast<double>(problem.d));
  return {.tensor_flops = problem.flops(),
          .exponentials = scores,
          .instructions = kInstructionsPerScore * scores,
          .shared_bytes = shared_bytes(problem, device, scores),
          .bytes = problem.min_bytes()};
}

std::optional<Floor> attention_floor(const AttentionProblem& problem, const DeviceInfo& device,
                                     Residency residency) {
  return floor_of(attention_demand(problem, device), device, residency);
}

}  // namespace vitune
