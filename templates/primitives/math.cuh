// templates/primitives/math.cuh -- The two transcendental functions of a softmax, at hardware
// speed.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// 2^x with a relative error of 2^-22; 2^-inf = 0, results below 2^-126 are flushed to 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x) with an absolute error of 2^-22 near 1; log2(0) = -inf.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace vitune
