// templates/attention_backward/store_sm90.cuh -- Gradients of rows on their way out, in the family
// sm90.
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/evict_store.cuh"
#include "primitives/shared.cuh"
#include "primitives/stmatrix.cuh"

namespace vitune {

// Writes `scale` times this warp's 16 rows of sums, of which the first `rows` are there, to `to`,
// rows `stride` elements apart, through its 16 rows of staging. kOnce: L2 may let them go first.
template <class T, bool kOnce = false>
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
      const uint4 piece = load_shared_16(staging + row * T::kStagingPitch + 16 * chunk);
      if constexpr (kOnce) {
        store_chunk_evict(to + row * stride + 8 * chunk, piece, evict_first());
      } else {
        store_chunk<16>(to + row * stride + 8 * chunk, piece);
      }
    }
  }
}

// dQ of a warpgroup's rows from row0 on, of head item.head of item.batch.
template <class Rows, class Item>
__device__ __forceinline__ void store_dq(const AttentionBackwardParams& p, const Rows& rows,
                                         const Item& item, int row0, u32 staging) {
  using T = typename Rows::Pass;
  const int warp = threadIdx.x / kWarpSize % 4, first = row0 + 16 * warp;
  store_gradients<T>(static_cast<u16*>(p.dq) + item.batch * p.dq_view.batch +
                         item.head * p.dq_view.head + first * p.dq_view.row,
                     p.dq_view.row, T::kQueries - first, staging + 16 * warp * T::kStagingPitch,
                     rows.sums, p.call.scale);
}

// dK and dV of the same.
template <class Rows, class Item>
__device__ __forceinline__ void store_dkv(const AttentionBackwardParams& p, const Rows& rows,
                                          const Item& item, int row0, u32 staging) {
  using T = typename Rows::Pass;
  const int warp = threadIdx.x / kWarpSize % 4, first = row0 + 16 * warp;
  const u32 own = staging + 16 * warp * T::kStagingPitch;
  store_gradients<T>(static_cast<u16*>(p.dk) + item.batch * p.dk_view.batch +
                         item.head * p.dk_view.head + first * p.dk_view.row,
                     p.dk_view.row, T::kKeys - first, own, rows.dk, p.call.scale);
  store_gradients<T>(static_cast<u16*>(p.dv) + item.batch * p.dv_view.batch +
                         item.head * p.dv_view.head + first * p.dv_view.row,
                     p.dv_view.row, T::kKeys - first, own, rows.dv, 1.f);
}

}  // namespace vitune
