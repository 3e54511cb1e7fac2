// templates/group_norm/tile.cuh -- The vectors of x that a CTA, or a part of its threads, works on.
//
// A tile is kRows rows of kRowVectors vectors of kVector elements, a row kRowStride elements after
// the one before. NCHW: a group, whose elements lie side by side, one vector to a row. NHWC: the
// channels of one group, or of kGroups neighbouring ones (a slice), one position to a row. A
// chunked tile is cut into kChunks runs of kChunkRows rows, the last one shorter.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

template <class C>
struct GroupNormTile {
  static constexpr int kVector = C::kVector;
  // Those that share a tile, and how many of them it keeps busy: in a slice each has a column.
  static constexpr int kTileThreads = C::kSliced ? C::kThreads : C::kThreads / C::kGroups;
  static constexpr int kBusy =
      C::kSliced ? C::kThreads / C::kRowVectors * C::kRowVectors : kTileThreads;
  static constexpr bool kFixedColumn = kBusy % C::kRowVectors == 0;
  static constexpr int kSteps = ceil_div(C::kChunkRows * C::kRowVectors, kBusy);  // of a thread
  static constexpr bool kAllThere = C::kNhwc || C::kGroups == 1;  // else the last CTA's may lack
  static constexpr bool kEven = kAllThere && kBusy == kTileThreads &&
                                C::kRows == C::kChunks * C::kChunkRows &&
                                kSteps * kBusy == C::kChunkRows * C::kRowVectors;
  // Groups that one vector's elements may belong to: one, or any.
  static constexpr int kSlots = C::kSliced && C::kGroupChannels % kVector != 0 ? kVector : 1;

  u32 group;  // the first one, counted over all images
  int chunk, thread;
  int vectors;  // of the chunk
  i64 start;    // of the chunk, in elements

  __device__ __forceinline__ GroupNormTile(u32 block, i64 groups) {
    thread = int(threadIdx.x) % kTileThreads;
    if (C::kNhwc) {  // neighbouring CTAs take neighbouring channels
      constexpr u32 kTiles = C::kAllGroups / C::kGroups;
      chunk = int(block / kTiles % C::kChunks);
      const u32 image = block / kTiles / C::kChunks;
      group = image * C::kAllGroups + block % kTiles * C::kGroups;
      start = i64(image) * C::kRows * C::kRowStride + first_channel();
    } else {
      chunk = int(block % C::kChunks);
      group = block / C::kChunks * C::kGroups + threadIdx.x / kTileThreads;
      start = i64(group) * C::kRows * C::kRowStride;
    }
    start += i64(chunk) * C::kChunkRows * C::kRowStride;
    vectors = rows_of(chunk) * C::kRowVectors;
    if (!kAllThere && group >= groups) vectors = 0;  // its threads meet the others at barriers
  }

  static __device__ __forceinline__ int rows_of(int chunk) {
    return min_of(C::kChunkRows, C::kRows - chunk * C::kChunkRows);
  }
  __device__ __forceinline__ int first_channel() const {
    return int(group % C::kAllGroups) * C::kGroupChannels;
  }

  // A thread goes through its vectors in steps.
  __device__ __forceinline__ int vector(int step) const { return step * kBusy + thread; }
  __device__ __forceinline__ bool has(int step) const {
    return kEven || (thread < kBusy && vector(step) < vectors);
  }
  __device__ __forceinline__ int row(int step) const {
    return kFixedColumn ? step * (kBusy / C::kRowVectors) + thread / C::kRowVectors
                        : vector(step) / C::kRowVectors;
  }
  __device__ __forceinline__ int column(int step) const {
    return (kFixedColumn ? thread : vector(step)) % C::kRowVectors * kVector;
  }
  __device__ __forceinline__ i64 offset(int step) const {
    return start + i64(row(step)) * C::kRowStride + column(step);
  }
  // The first of the kVectorChannels channels that the vector's elements are of.
  __device__ __forceinline__ int channel(int step) const {
    if (C::kNhwc) return first_channel() + column(step);
    return first_channel() + (chunk * C::kChunkRows + row(step)) * kVector / C::kPositions;
  }
  // The slice's group that element `element` of the thread's column belongs to.
  __device__ __forceinline__ int slice_group(int element) const {
    return (column(0) + element) / C::kGroupChannels;
  }
  // How many numbers of each slot a thread of a slice has.
  __device__ __forceinline__ float numbers_of(int other) const {
    return float((vectors - other + kBusy - 1) / kBusy * (kVector / kSlots));
  }
};

}  // namespace vitune
