// generator/norm_backward/rows.h -- What follows from a problem of norms' gradients and its config.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/device_info.h"
#include "generator/geometry.h"
#include "generator/norm_backward/problem.h"
#include "templates/norm_backward/geometry_rows.cuh"

namespace vitune {

// Its kernels' geometry, and what the launch knows.
struct NormBackwardShape : NormBackwardRows {
  int streaming = 0;  // L2 need not keep the inputs

  explicit NormBackwardShape(const NormBackwardProblem& problem);  // the facts alone
  NormBackwardShape(const NormBackwardProblem& problem, const Config& config);

  // CTAs of the first kernel: each has its rows, as far as there are so many, and the device has
  // room for all at once.
  std::int64_t grid(const NormBackwardProblem& problem, const DeviceInfo& device) const;
  // Memory of the sums that these leave to the second kernel, in fp32.
  std::int64_t scratch_bytes(std::int64_t grid) const { return 4 * grid * column_sums * columns; }
};

const Tunables<NormBackwardShape>& norm_backward_tunables();

// Members of a generated Config: the facts of a problem that the geometry does not hold.
std::string norm_backward_facts_text(const NormBackwardProblem& problem);

}  // namespace vitune
