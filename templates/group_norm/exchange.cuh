// templates/group_norm/exchange.cuh -- How CTAs that run at once tell each other the moments of
// their parts of groups: words in the plan's scratch memory, which a small kernel clears before.
//
// All parts have as many numbers, and powers of two of them are merged (even_moments.cuh).
#pragma once

#include "group_norm/even_moments.cuh"
#include "group_norm/groups.cuh"
#include "primitives/grid_order.cuh"
#include "primitives/posted_word.cuh"

namespace vitune {

template <class C>
struct GroupNormExchange {
  using Tile = GroupNormTile<C>;
  static constexpr int kWarps = C::kThreads / kWarpSize;
  static constexpr int kColumns = C::kRowVectors / C::kGroups;  // of a row, that are one group's
  // The bits in which the numbers of lanes with vectors of one group differ.
  static constexpr int kSameGroup = (kWarpSize - 1) & ~(C::kRowVectors - kColumns);
  // Both twice: the next wave's are written while these are read.
  static constexpr u32 kPartBytes = 8 * C::kGroups * kWarps, kScaleBytes = 8 * C::kGroups;
  static constexpr u32 kBytes = 2 * (kPartBytes + kScaleBytes);

  const GroupNormParams& p;
  u32 shared;  // kBytes

  __device__ __forceinline__ float* words(const Tile& tile, int group) const {
    return p.partials + 2 * i64(tile.group + group) * C::kChunks;
  }

  // Posts the moments of the CTA's parts of a wave's groups; its threads meet.
  __device__ __forceinline__ void post(const Tile& tile, int wave, const Moments& own) const {
    const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
    const u32 parts = shared + wave % 2 * kPartBytes;
    const Moments m = merged_lanes<kSameGroup>(own);
    if ((lane & kSameGroup) == 0) {
      const u32 at = parts + 8 * (lane % C::kRowVectors / kColumns * kWarps + warp);
      store_shared(at, __float_as_uint(m.mean));
      store_shared(at + 4, __float_as_uint(m.squares));
    }
    __syncthreads();
    for (int group = warp; group < C::kGroups; group += kWarps) {
      const u32 at = parts + 8 * (group * kWarps + lane % kWarps);
      const Moments part = {m.count, __uint_as_float(load_shared(at)),
                            __uint_as_float(load_shared(at + 4))};
      const Moments all = merged_lanes<kWarps - 1>(part);
      if (lane == 0) post_word(words(tile, group) + 2 * tile.chunk, all.mean, all.squares);
    }
  }

  // The moments of a group of the tile, from the words of all CTAs that have a part of it; a warp.
  __device__ __forceinline__ Moments whole(const Tile& tile, int group) const {
    constexpr int kLanes = min_of(C::kChunks, kWarpSize), kWords = C::kChunks / kLanes;
    constexpr float kPart = float(C::kChunkRows * kColumns * C::kVector);
    const int lane = int(threadIdx.x) % kLanes;
    float2 word[kWords];
    wait_for_words<kLanes>(words(tile, group) + 2 * lane, C::kChunks - lane, word);
    Moments m[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) m[i] = {kPart, word[i].x, word[i].y};
#pragma unroll
    for (int half = kWords / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i)
        m[i] = merged_pair(m[i], m[i + half].mean, m[i + half].squares);
    }
    return merged_lanes<kLanes - 1>(m[0]);
  }

  // Mean and deviation of the thread's group of a wave; its threads meet.
  __device__ __forceinline__ GroupNormScale<1> scale(const Tile& tile, int wave) const {
    const u32 scales = shared + 2 * kPartBytes + wave % 2 * kScaleBytes;
    const int warp = kWarps - 1 - int(threadIdx.x) / kWarpSize;  // the first ones still post
    for (int group = warp; group < C::kGroups; group += kWarps) {
      const Moments m = whole(tile, group);
      if (threadIdx.x % kWarpSize == 0) put_scale(scales, group, m, p.eps);
    }
    return shared_scale(tile, scales);
  }
};

// A word for each group of all images and each CTA that has a part of it.
template <class C>
__device__ void group_norm_clear(const GroupNormParams& p) {
  const i64 word = i64(blockIdx.x) * C::kThreads + threadIdx.x;
  wait_for_earlier_grids();
  let_next_grid_start();
  if (word < p.groups * C::kChunks) clear_word(p.partials + 2 * word);
}

}  // namespace vitune
