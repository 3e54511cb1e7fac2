// templates/window_attention_backward/finish.cuh -- The sums that CTAs have left, added in their
// order: the gradients of the bias and of padding; and of a table that the bias is taken from.
#pragma once

#include "window_attention_backward/config.cuh"

namespace vitune {

// One sum of dbias: that of window `window` and head `head` (of all heads, if they share one), at
// place `at` of its [n, n].
template <class T>
__device__ __forceinline__ float bias_sum(const WindowAttentionBackwardParams& p, int window,
                                          int head, int at) {
  constexpr i64 kEach = T::kWindowKeys * T::kWindowKeys;
  const int heads = p.forward.call.heads, sharing = heads / p.dbias_heads;
  float sum = 0.f;
#pragma unroll 1
  for (int part = 0; part < p.parts; ++part) {
    const i64 first = i64(part) * p.entries + window * heads + head;
#pragma unroll 4
    for (int i = 0; i < sharing; ++i) sum += p.partials[(first + i) * kEach + at];
  }
  return sum;
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

// A warp has one row of the table and some heads: its lanes look through the index, each at every
// 32nd entry.
template <class C>
__device__ __forceinline__ void window_attention_backward_table(
    const WindowAttentionBackwardParams& p) {
  using T = WindowBackwardTraits<C>;
  constexpr int kEach = T::kWindowKeys * T::kWindowKeys, kHeads = T::kG.kTableHeads;
  constexpr int kWarps = T::kG.kTableThreads / kWarpSize;
  const int lane = int(threadIdx.x) % kWarpSize;
  const int groups = ceil_div(p.dbias_heads, kHeads);
  const int work = int(blockIdx.x) * kWarps + int(threadIdx.x) / kWarpSize;
  const int row = work / groups, head0 = (work - row * groups) * kHeads;
  if (row >= p.table_rows) return;
  float sums[kHeads] = {};
#pragma unroll 4
  for (int at = lane; at < kEach; at += kWarpSize) {
    if (__ldg(p.index + at) != row) continue;
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if (head0 + i < p.dbias_heads) sums[i] += p.dbias[i64(head0 + i) * kEach + at];
    }
  }
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
    }
    if (lane == i && head0 + i < p.dbias_heads) {
      p.dtable[i64(row) * p.dbias_heads + head0 + i] = sums[i];
    }
  }
}

}  // namespace vitune
