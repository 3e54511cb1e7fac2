// templates/attention/key_split.cuh -- Warps that share the keys of a row put their parts together.
//
// For few rows and many keys (class tokens, attention pooling) one warp per sixteen rows leaves an
// SM idle. With kKeySplit warps for the same rows each takes every kKeySplit-th step of keys;
// outputs and sums relative to a warp's own maximum are then brought to the common one (the split
// of Flash-Decoding, Dao et al. 2023, within a CTA).
#pragma once

#include "attention/warp_attention.cuh"
#include "primitives/shared.cuh"

namespace vitune {

template <class T>
struct KeySplit {
  // A lane's part: maxima and sums of two rows, then its outputs; a word of all lanes side by side.
  static constexpr int kWords = 4 + 4 * T::kHeadTiles;
  static constexpr int kPartBytes = kWords * kWarpSize * 4;
  static constexpr int kBytes = (T::kKeySplit - 1) * T::kRowWarps * kPartBytes;
  static_assert(T::kKeySplit == 1 || kBytes <= 2 * T::kKeyBytes,
                "the parts of split keys must fit in the tiles of keys and values");

  const int row_warp, share;  // whose rows, and which share of their keys: 0 gets the result

  __device__ __forceinline__ explicit KeySplit(int warp)
      : row_warp(warp % T::kRowWarps), share(warp / T::kRowWarps) {}

  // By all warps of the CTA, after the last step; `tiles` is the memory of keys and values.
  __device__ __forceinline__ void combine(WarpAttention<T>& warp, u32 tiles, bool active) const {
    if constexpr (T::kKeySplit > 1) {
      copy_wait<0>();
      __syncthreads();  // the tiles have been read
      if (active && share > 0) give(warp, part_of(tiles, share));
      __syncthreads();
      if (!active || share > 0) return;
#pragma unroll 1
      for (int other = 1; other < T::kKeySplit; ++other) take(warp, part_of(tiles, other));
    }
  }

 private:
  __device__ __forceinline__ u32 part_of(u32 tiles, int whose) const {
    return tiles + ((whose - 1) * T::kRowWarps + row_warp) * kPartBytes +
           threadIdx.x % kWarpSize * 4;
  }
  static __device__ __forceinline__ void put(u32 part, int word, float value) {
    store_shared(part + word * kWarpSize * 4, __float_as_uint(value));
  }
  static __device__ __forceinline__ float get(u32 part, int word) {
    return __uint_as_float(load_shared(part + word * kWarpSize * 4));
  }
  __device__ __forceinline__ void give(const WarpAttention<T>& warp, u32 part) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      put(part, half, warp.softmax.maximum[0][half]);
      put(part, 2 + half, warp.softmax.sum[0][half]);
    }
#pragma unroll
    for (int i = 0; i < 4 * T::kHeadTiles; ++i) put(part, 4 + i, warp.o[0][i / 4][i % 4]);
  }
  __device__ __forceinline__ void take(WarpAttention<T>& warp, u32 part) const {
    float mine[2], theirs[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      warp.softmax.merge(0, half, get(part, half), get(part, 2 + half), mine[half], theirs[half]);
    }
#pragma unroll
    for (int i = 0; i < 4 * T::kHeadTiles; ++i) {
      float& o = warp.o[0][i / 4][i % 4];
      o = o * mine[i % 4 / 2] + get(part, 4 + i) * theirs[i % 4 / 2];
    }
  }
};

}  // namespace vitune
