// templates/attention_backward/store_sm90.cuh -- Gradients of rows on their way out, in the family
// sm90.
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"
#include "primitives/stmatrix.cuh"

namespace vitune {

// Writes `scale` times this warp's 16 rows of sums, of which the first `rows` are there, to `to`,
// rows `stride` elements apart, through its 16 rows of staging.
template <class T>
__device__ __forceinline__ void store_gradients(u16* to, long long stride, int rows, u32 staging,
                                                const float (&sums)[T::kHeadDim / 2], float scale) {
  using E = Element<T::kElement>;
  constexpr int kChunks = T::kHeadDim / 8;
  const int lane = threadIdx.x % kWarpSize;
  __syncwarp();  // what was staged before may still be read
#pragma unroll
  for (int chunk = 0; chunk < kChunks; chunk += 2) {
    u32 words[4] = {};
#pragma unroll
    for (int i = 0; i < (chunk + 1 < kChunks ? 4 : 2); ++i) {
      words[i] = E::pack(sums[4 * chunk + 2 * i] * scale, sums[4 * chunk + 2 * i + 1] * scale);
    }
    stmatrix_x4(staging + lane % 16 * T::kStagingPitch + (chunk + lane / 16) * 16, words);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < ceil_div(16 * kChunks, kWarpSize); ++i) {
    const int place = i * kWarpSize + lane, row = place / kChunks, chunk = place % kChunks;
    if (row < min(rows, 16)) {
      store_chunk<16>(to + row * stride + 8 * chunk,
                      load_shared_16(staging + row * T::kStagingPitch + 16 * chunk));
    }
  }
}

}  // namespace vitune
