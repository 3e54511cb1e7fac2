// templates/group_norm/statistics.cuh -- From the numbers in a thread's registers to the mean and
// the deviation of their groups.
#pragma once

#include "group_norm/moments.cuh"
#include "group_norm/params.cuh"
#include "group_norm/tile.cuh"
#include "primitives/shared.cuh"
#include "primitives/vector.cuh"

namespace vitune {

// A thread's next C::kPieces vectors as they were read.
template <class C>
struct GroupNormPiece {
  using Tile = GroupNormTile<C>;
  using X = Vector<C::kType, C::kVector>;
  typename X::Raw x[C::kPieces];

  template <Keep kKeep>
  __device__ __forceinline__ void load(const GroupNormParams& p, const Tile& tile, int step) {
#pragma unroll
    for (int i = 0; i < C::kPieces; ++i) {
      if (!tile.has(step + i)) continue;
      x[i] = load_piece<X::kBytes, kKeep>(X::address(p.x, tile.offset(step + i)));
    }
  }
  // Between passes over many 16-bit numbers: they are unpacked anew, not kept as fp32 in twice the
  // registers. `nothing`: another number each time that is 0 without the compiler's knowledge.
  __device__ __forceinline__ void pack_again(u32 nothing) {
    if constexpr (C::kType != 2 && C::kPieces * C::kVector > 16) {
#pragma unroll
      for (int i = 0; i < C::kPieces; ++i) {
#pragma unroll
        for (u32& word : x[i].words) word ^= nothing;
      }
    }
  }
};

// Sums of the elements of vectors, slot by slot.
template <int kSlots, int kVector>
__device__ __forceinline__ void slot_sums(const float (&sums)[kVector], float (&slots)[kSlots]) {
#pragma unroll
  for (int i = 0; i < kSlots; ++i) slots[i] = sums[i];
  if constexpr (kSlots < kVector) {
#pragma unroll
    for (int i = kSlots; i < kVector; ++i) slots[i % kSlots] += sums[i];
  }
}

// Two passes over the piece: no cancellation, however far the numbers are from 0.
template <class C>
__device__ __forceinline__ void add_piece(RunningMoments<GroupNormTile<C>::kSlots>& running,
                                          GroupNormPiece<C>& piece, const GroupNormTile<C>& tile,
                                          int step) {
  constexpr int kVector = C::kVector, kSlots = GroupNormTile<C>::kSlots;
  using X = typename GroupNormPiece<C>::X;
  float sums[kVector] = {}, v[kVector], mean[kSlots], squares[kSlots];
  int vectors = 0;
#pragma unroll
  for (int i = 0; i < C::kPieces; ++i) {
    if (!tile.has(step + i)) continue;
    X::unpack(piece.x[i], v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sums[j] += v[j];
    ++vectors;
  }
  const float count = float(vectors * (kVector / kSlots));
  slot_sums(sums, mean);
  piece.pack_again(gridDim.y - 1);
#pragma unroll
  for (int i = 0; i < kSlots; ++i) mean[i] /= fmaxf(count, 1.f);
#pragma unroll
  for (int j = 0; j < kVector; ++j) sums[j] = 0;
#pragma unroll
  for (int i = 0; i < C::kPieces; ++i) {
    if (!tile.has(step + i)) continue;
    X::unpack(piece.x[i], v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float distance = v[j] - mean[j % kSlots];
      sums[j] += distance * distance;
    }
  }
  slot_sums(sums, squares);
  piece.pack_again(gridDim.z - 1);
  running.add(count, mean, squares);
}

// Statistics of the group that all threads of the tile share, in each of them. `shared`: three
// words for each warp of the CTA.
template <class C>
__device__ __forceinline__ Moments group_moments(const RunningMoments<1>& running, u32 shared) {
  constexpr int kThreads = GroupNormTile<C>::kTileThreads;
  constexpr int kLanes = min_of(kThreads, kWarpSize), kWarps = kThreads / kLanes;
  const auto own = [&](int) { return Moments{running.count, running.mean[0], running.squares[0]}; };
  const Moments m = merged<kLanes>(kLanes, own);
  if constexpr (kWarps == 1) return m;
  const int warp = int(threadIdx.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) {
    store_shared(shared + 12 * warp, __float_as_uint(m.count));
    store_shared(shared + 12 * warp + 4, __float_as_uint(m.mean));
    store_shared(shared + 12 * warp + 8, __float_as_uint(m.squares));
  }
  __syncthreads();
  const u32 first = shared + 12 * (warp / kWarps * kWarps);
  return merged<kWarpSize>(kWarps, [&](int i) {
    return Moments{__uint_as_float(load_shared(first + 12 * i)),
                   __uint_as_float(load_shared(first + 12 * i + 4)),
                   __uint_as_float(load_shared(first + 12 * i + 8))};
  });
}

// Hands the moments of each group of the slice to take(group of the slice, moments), in one thread.
// `shared`: two words for each slot of kSlotStride threads.
template <class C, class Take>
__device__ __forceinline__ void slice_moments(
    const RunningMoments<GroupNormTile<C>::kSlots>& running, const GroupNormTile<C>& tile,
    u32 shared, Take take) {
  using Tile = GroupNormTile<C>;
  constexpr int kSlots = Tile::kSlots, kSquares = 4 * kSlots * C::kSlotStride;
  // Neighbouring columns of a row that are one group's.
  constexpr int kColumns = kSlots == 1 ? C::kGroupChannels / C::kVector : C::kGroupChannels;
  if (tile.thread < Tile::kBusy) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const u32 at = shared + 4 * (i * C::kSlotStride + tile.thread);
      store_shared(at, __float_as_uint(running.mean[i]));
      store_shared(at + kSquares, __float_as_uint(running.squares[i]));
    }
  }
  __syncthreads();
  constexpr int kWarps = C::kThreads / kWarpSize;
  for (int group = int(threadIdx.x) / kWarpSize; group < C::kGroups; group += kWarps) {
    const auto part = [&](int i) {
      const int column = group * kColumns + i % kColumns;
      const int thread = i / kColumns * C::kRowVectors + column / kSlots;
      const u32 at = shared + 4 * (column % kSlots * C::kSlotStride + thread);
      return Moments{tile.numbers_of(thread), __uint_as_float(load_shared(at)),
                     __uint_as_float(load_shared(at + kSquares))};
    };
    const Moments m = merged<kWarpSize>(kColumns * (Tile::kBusy / C::kRowVectors), part);
    if (threadIdx.x % kWarpSize == 0) take(group, m);
  }
}

__device__ __forceinline__ float reciprocal_deviation(const Moments& m, float eps) {
  return 1.f / sqrtf(m.squares / m.count + eps);
}

}  // namespace vitune
