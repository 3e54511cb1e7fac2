// templates/primitives/reciprocal.cuh -- 1 / x at hardware speed.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// With a relative error of 2^-23; below 2^-126 x and the result are flushed to 0.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace vitune
