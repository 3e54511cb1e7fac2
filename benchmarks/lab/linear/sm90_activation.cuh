// benchmarks/lab/linear/sm90_activation.cuh -- GELU from a sigmoid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/math.cuh"
#include "primitives/reciprocal.cuh"
#include "primitives/types.cuh"

namespace vitune {

// x times the normal distribution function of x, as x / (1 + exp(-x P(x^2))). Before rounding the
// relative error is at most 1.3e-3 for |x| <= 5, less than half a unit in the last place of bf16;
// the absolute error is at most 4e-7 below -5.
__device__ __forceinline__ float gelu(float x) {
  const float square = fminf(x * x, 25.f);
  float power = fmaf(square, -9.03313944e-6f * kLog2E, 9.86735675e-4f * kLog2E);
  power = fmaf(square, power, -7.58280576e-2f * kLog2E);
  power = fmaf(square, power, -1.59260735f * kLog2E);
  return x * reciprocal_approx(1.f + exp2_approx(x * power));
}

template <int kActivation>
__device__ __forceinline__ float activated(float x) {
  static_assert(kActivation == 0 || kActivation == 1, "kActivation must be 0 (none) or 1 (GELU)");
  return kActivation == 1 ? gelu(x) : x;
}

}  // namespace vitune
