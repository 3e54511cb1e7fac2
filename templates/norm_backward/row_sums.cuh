// templates/norm_backward/row_sums.cuh -- Several sums at once over the threads that share a row,
// in an order that is always the same.
#pragma once

#include "primitives/shared.cuh"
#include "primitives/sync.cuh"
#include "primitives/types.cuh"

namespace vitune {

// kRowThreads threads for each of kRows rows of a CTA. Where a row has several warps each has a
// word for each of kMost sums in each of two buffers, which are used alternately: a barrier of all
// warps lies between two uses of a word.
template <int kRowThreads, int kRows, int kMost>
class RowSums {
 public:
  // `words`: of all rows, in shared memory.
  __device__ __forceinline__ explicit RowSums(u32 words)
      : row_(int(threadIdx.x) / kRowThreads), words_(words + row_ * 2 * kBufferBytes) {}

  // Every thread of the row, and of the warp, takes part; all of them get the sums.
  template <int kCount>
  __device__ __forceinline__ void add(float (&values)[kCount]) {
    static_assert(kCount <= kMost, "no words for so many sums");
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] += __shfl_xor_sync(0xffffffffu, values[i], mask);
    }
    if constexpr (kWarps > 1) add_warps(values);
  }

 private:
  static constexpr int kLanes = min_of(kRowThreads, kWarpSize), kWarps = kRowThreads / kLanes;
  static constexpr int kBufferBytes = kWarps > 1 ? 4 * kMost* kWarps : 0;

  template <int kCount>
  __device__ __forceinline__ void add_warps(float (&values)[kCount]) {
    const u32 words = words_ + buffer_ * kBufferBytes;
    const int warp = int(threadIdx.x) % kRowThreads / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        store_shared(words + 4 * (i * kWarps + warp), __float_as_uint(values[i]));
      }
    }
    group_barrier<kRows, kRowThreads>(row_);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = 0;
#pragma unroll
      for (int j = 0; j < kWarps; ++j) {
        values[i] += __uint_as_float(load_shared(words + 4 * (i * kWarps + j)));
      }
    }
    buffer_ ^= 1;
  }

  int row_;
  u32 words_;
  int buffer_ = 0;
};

}  // namespace vitune
