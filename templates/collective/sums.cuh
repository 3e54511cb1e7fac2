// templates/collective/sums.cuh -- Sums of products in registers, before the first of them.
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

}  // namespace vitune
