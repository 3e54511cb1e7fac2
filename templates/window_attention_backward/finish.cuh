// templates/window_attention_backward/finish.cuh -- The sums that CTAs have left, added in their
// order: the gradients of the bias and of padding; and of a table that the bias is taken from.
#pragma once

#include "collective/sums.cuh"
#include "window_attention_backward/config.cuh"

namespace vitune {

// One sum of dbias: that of window `window` and head `head` (of all heads, if they share one), at
// place `at` of its [n, n].
template <class T>
__device__ __forceinline__ float bias_sum(const WindowAttentionBackwardParams& p, int window,
                                          int head, int at) {
  constexpr i64 kEach = T::kWindowKeys * T::kWindowKeys;
  const int heads = p.forward.call.heads, sharing = heads / p.dbias_heads;
  const float* from = p.partials + i64(window * heads + head) * kEach + at;
  const i64 to_next_part = i64(p.entries - sharing + 1) * kEach;
  int i = 0;
  return sum_in_order<32>(p.parts * sharing, [&] {
    const float* const each = from;
    const bool is_last = ++i == sharing;  // of the heads of a part
    from += is_last ? to_next_part : kEach;
    i = is_last ? 0 : i;
    return each;
  });
}

// Four rows of the index, from `first` on; no row behind its end.
__device__ __forceinline__ void load_index_rows(const int* index, int first, int end, bool by_four,
                                                int (&rows)[4]) {
  if (by_four && first + 4 <= end) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(index + first));
    rows[0] = int(four.x), rows[1] = int(four.y), rows[2] = int(four.z), rows[3] = int(four.w);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) rows[i] = first + i < end ? __ldg(index + first + i) : -1;
}

template <class C>
__device__ __forceinline__ void window_attention_backward_finish(
    const WindowAttentionBackwardParams& p) {
  using T = WindowBackwardTraits<C>;
  constexpr int kEach = T::kWindowKeys * T::kWindowKeys;
  const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 threads = i64(gridDim.x) * blockDim.x;
  if constexpr (T::kDbias) {
    const i64 all = i64(p.dbias_windows) * p.dbias_heads * kEach;
#pragma unroll 1
    for (i64 i = thread; i < all; i += threads) {
      const int entry = int(i / kEach), window = entry / p.dbias_heads;
      p.dbias[i] = bias_sum<T>(p, window, entry - window * p.dbias_heads, int(i % kEach));
    }
  }
  if constexpr (T::kDpadding) {
    const int heads = p.forward.call.heads, each = heads * T::kHeadDim;
#pragma unroll 1
    for (i64 i = thread; i < 3 * each; i += threads) {
      const int which = int(i) / each, head = int(i) % each / T::kHeadDim;
      float sum = 0.f;  // of q for good: forward keeps no result of padding
#pragma unroll 4
      for (i64 cta = head; which > 0 && cta < i64(p.parts) * p.entries; cta += heads) {
        sum += p.padding_partials[(2 * cta + which - 1) * T::kHeadDim + int(i) % T::kHeadDim];
      }
      p.dpadding[i] = sum;
    }
  }
}

// A CTA has one row of the table and some heads: its threads look through the index, each at four
// entries in a row.
template <class C>
__device__ __forceinline__ void window_attention_backward_table(
    const WindowAttentionBackwardParams& p) {
  using T = WindowBackwardTraits<C>;
  constexpr int kEach = T::kWindowKeys * T::kWindowKeys, kHeads = T::kG.kTableHeads;
  constexpr int kWarps = T::kG.kTableThreads / kWarpSize;
  __shared__ float shared[kWarps][kHeads];
  const int lane = int(threadIdx.x) % kWarpSize, warp = int(threadIdx.x) / kWarpSize;
  const int groups = ceil_div(p.dbias_heads, kHeads);
  const int row = int(blockIdx.x) / groups, head0 = (int(blockIdx.x) - row * groups) * kHeads;
  const bool by_four = reinterpret_cast<u64>(p.index) % 16 == 0;
  float sums[kHeads] = {};
#pragma unroll 2
  for (int first = 4 * int(threadIdx.x); first < kEach; first += 4 * T::kG.kTableThreads) {
    int rows[4];
    load_index_rows(p.index, first, kEach, by_four, rows);
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      if (rows[at] != row) continue;
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        if (head0 + i < p.dbias_heads) sums[i] += p.dbias[i64(head0 + i) * kEach + first + at];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
    }
    if (lane == i) shared[warp][i] = sums[i];
  }
  __syncthreads();
  const int i = int(threadIdx.x);
  if (i >= kHeads || head0 + i >= p.dbias_heads) return;
  float sum = 0.f;
#pragma unroll
  for (int each = 0; each < kWarps; ++each) sum += shared[each][i];
  p.dtable[i64(row) * p.dbias_heads + head0 + i] = sum;
}

}  // namespace vitune
