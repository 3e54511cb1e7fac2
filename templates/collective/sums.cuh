// templates/collective/sums.cuh -- Sums of products in registers, before the first of them; sums
// that CTAs have left in memory.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ void clear(float& sum) { sum = 0.f; }
// All of an array of any rank.
template <class Sums, int kCount>
__device__ __forceinline__ void clear(Sums (&sums)[kCount]) {
#pragma unroll
  for (Sums& each : sums) clear(each);
}

// Adds so many numbers of memory in their order; next() gives the place of the next one, and of
// some behind the last. kAtOnce loads are on their way together: one by one, as a loop's remainder
// has them, they take longer than all else of a kernel that adds up what others have left.
template <int kAtOnce, class Next>
__device__ __forceinline__ float sum_in_order(int count, Next next) {
  float sum = 0.f;
#pragma unroll 1
  for (int left = count; left > 0; left -= kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float* const at = next();
      values[k] = k < left ? *at : 0.f;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum += values[k];
  }
  return sum;
}

}  // namespace vitune
