// templates/norm/row_sum.cuh -- Sums over the threads that share a row, in an order that is always
// the same.
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

// `place`: of this row's words in shared memory, one for each warp; used only where a row has more
// than one. Every thread of the CTA takes part, and a CTA barrier lies between two uses of a place.
template <int kRowThreads>
__device__ __forceinline__ float row_sum(float value, u32 place) {
  constexpr int kLanes = min_of(kRowThreads, kWarpSize), kWarps = kRowThreads / kLanes;
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, mask);
  }
  if constexpr (kWarps > 1) {
    const int warp = int(threadIdx.x) % kRowThreads / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) store_shared(place + 4 * warp, __float_as_uint(value));
    __syncthreads();
    value = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) value += __uint_as_float(load_shared(place + 4 * i));
  }
  return value;
}

}  // namespace vitune
