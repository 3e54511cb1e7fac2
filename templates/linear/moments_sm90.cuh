// templates/linear/moments_sm90.cuh -- Moments of rows in the families sm90: those of the result
// written beside it, those of x taken in the place of means and deviations.
//
// Of a block of a row's columns, as they are stored, moments are the mean and the sum of squared
// distances from it; they merge without loss (Chan, Golub, LeVeque 1983). With them a norm between
// two layers needs no pass over the first one's result. Facts of the problem: config_sm90.cuh.
#pragma once

#include "linear/ring_sm90.cuh"
#include "linear/tiles_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/number_store.cuh"
#include "primitives/piece.cuh"
#include "primitives/shared.cuh"
#include "primitives/shared_pair.cuh"

namespace vitune {

// Computes the moments of each block of columns of a warp's rows, two lanes to a row, and stores
// them in LinearParams::partials.
template <class T, bool kWritten = (T::kMomentsWritten > 0)>
struct LinearRowMoments {
  static constexpr int kStoreTileColumns = 32, kColumns = T::kMomentsWritten;
  static constexpr int kBlocks = T::kBlockN / kColumns;
  static_assert(T::kStoreColumns == kStoreTileColumns,
                "kMomentsWritten: a store tile is staged as a whole, 32 columns of each row");
  static_assert(kColumns % kStoreTileColumns == 0 && T::kBlockN % kColumns == 0,
                "kMomentsWritten: blocks are whole store tiles, and a tile whole blocks");

  float mean[T::kRowBlocks][kBlocks], squares[T::kRowBlocks][kBlocks];

  // Adds this lane's row in a staged store tile, whose chunks are swizzled by `swizzle`; sixteen
  // columns are this lane's. Nothing may be staged there before all lanes are done.
  __device__ __forceinline__ void add_store_tile(u32 row, int swizzle, int store, int block) {
    using E = Element<T::kElement>;
    const int lane = int(threadIdx.x) % kWarpSize;
    // Read twice, rather than kept; chains of additions of a quarter's length.
    const auto each = [&](auto take) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 v = load_shared_16(row + ((lane % 2 * 2 + i) ^ swizzle) * 16);
        const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) take(j, E::low(words[j])), take(j, E::high(words[j]));
      }
    };
    float sums[4] = {}, distances[4] = {};
    each([&](int j, float value) { sums[j] += value; });
    const float center = both_halves(sums) / kStoreTileColumns;
    each([&](int j, float value) {
      distances[j] = fmaf(value - center, value - center, distances[j]);
    });
    const float spread = both_halves(distances);

    const int at = store * kStoreTileColumns / kColumns;             // the block that it is of
    const int before = store - at * (kColumns / kStoreTileColumns);  // its store tiles
    float &all_mean = mean[block][at], &all_squares = squares[block][at];
    if (before == 0) {
      all_mean = center;
      all_squares = spread;
    } else {
      const float share = 1.f / float(before + 1), distance = center - all_mean;
      all_mean = fmaf(distance, share, all_mean);
      all_squares += fmaf(distance * (float(kStoreTileColumns * before) * share), distance, spread);
    }
  }

  // Behind the last store tile: a store in between would be waited for by the next one's proxy
  // fence.
  __device__ __forceinline__ void store(const LinearParams& p, int block, int row,
                                        int column0) const {
    const int blocks = p.n / kColumns, first = column0 / kColumns;
    float* const to = p.partials + (i64(row) * blocks + first) * 2;
    if (threadIdx.x % 2 != 0 || row >= p.m) return;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (first + i < blocks) store_numbers(to + 2 * i, mean[block][i], squares[block][i]);
    }
  }

 private:
  // The sum over a lane's quarters and its neighbour's.
  static __device__ __forceinline__ float both_halves(const float (&quarters)[4]) {
    const float own = quarters[0] + quarters[1] + (quarters[2] + quarters[3]);
    return own + __shfl_xor_sync(0xffffffffu, own, 1);
  }
};

template <class T>
struct LinearRowMoments<T, false> {};

// Merges the moments of the blocks of a row of x as they come.
template <class T>
class LinearMerge {
 public:
  // Distances are from `pivot`, the first block's mean: what is taken away in the end is no more
  // than is left.
  __device__ __forceinline__ void add(const Piece<8>& block, float pivot) {
    const float distance = __uint_as_float(block.words[0]) - pivot;
    sum_ += distance;
    squares_ += fmaf(distance * T::kMomentsGiven, distance, __uint_as_float(block.words[1]));
  }
  // The moments that kLanes neighbours have added.
  template <int kLanes>
  __device__ __forceinline__ void gather() {
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) {
      sum_ += __shfl_xor_sync(0xffffffffu, sum_, mask);
      squares_ += __shfl_xor_sync(0xffffffffu, squares_, mask);
    }
  }
  // The mean and 1 / deviation, of `blocks` blocks in all.
  __device__ __forceinline__ float2 finish(int blocks, float pivot) const {
    const float share = 1.f / float(blocks), from_pivot = sum_ * share;
    const float variance = fmaf(-from_pivot, from_pivot, squares_ * (share / T::kMomentsGiven));
    return {pivot + from_pivot, 1.f / sqrtf(fmaxf(variance, 0.f) + T::kEps)};
  }

 private:
  float sum_ = 0.f, squares_ = 0.f;
};

// Merges the partial moments of every tile's rows, by the three warps beside the producer, a tile
// ahead of the products.
template <class T>
__device__ __forceinline__ void merge_moments(const LinearParams& p,
                                              const LinearShared<T>& shared) {
  constexpr int kFirst = T::kGroups * kGroupThreads + kWarpSize;
  // Lanes to a row, so that a warp's loads are of neighbouring sectors; rows at once. Asked for at
  // once: all of a tile, or a block where copying threads have few registers.
  constexpr int kLanes = !T::kTradesRegisters && T::kMostGiven > 8 ? 4 : 1;
  constexpr int kRows = 3 * kWarpSize / kLanes;
  constexpr int kRounds = ceil_div(T::kBlockM, kRows), kEach = ceil_div(T::kMostGiven, kLanes);
  constexpr int kRoundsAtOnce = T::kTradesRegisters ? 1 : kRounds;
  constexpr int kAtOnce = T::kTradesRegisters ? 1 : kEach;
  if (threadIdx.x < kFirst) return;
  const int first = int(threadIdx.x - kFirst) / kLanes, lane = int(threadIdx.x) % kLanes;
  const int blocks = p.k / T::kMomentsGiven;
  PipelineState<T::kMerged> at;
#pragma unroll 1
  for (TileOrder<T> tile(p, 0, 1); tile.any(); tile.next(), at.advance()) {
    mbarrier_wait(shared.merged_empty(at.index), at.phase ^ 1);
#pragma unroll 1
    for (int round0 = 0; round0 < kRounds; round0 += kRoundsAtOnce) {
      LinearMerge<T> merges[kRoundsAtOnce];
      float pivots[kRoundsAtOnce];
#pragma unroll 1
      for (int each0 = 0; each0 * kLanes < blocks; each0 += kAtOnce) {
        Piece<8> held[kRoundsAtOnce][kAtOnce];
#pragma unroll
        for (int round = 0; round < kRoundsAtOnce; ++round) {
          const int row = min(tile.row() + first + (round0 + round) * kRows, p.m - 1);
          const float* const from = p.mean + i64(row) * blocks * 2;
#pragma unroll
          for (int each = 0; each < kAtOnce; ++each) {
            const int block = (each0 + each) * kLanes + lane;
            if (block < blocks) held[round][each] = load_constant_piece<8>(from + 2 * block);
          }
        }
#pragma unroll
        for (int round = 0; round < kRoundsAtOnce; ++round) {
          float& pivot = pivots[round];
          if (each0 == 0) pivot = __uint_as_float(held[round][0].words[0]);
          if (kLanes > 1 && each0 == 0) {
            pivot = __shfl_sync(0xffffffffu, pivot, int(threadIdx.x) % kWarpSize - lane);
          }
#pragma unroll
          for (int each = 0; each < kAtOnce; ++each) {
            const int block = (each0 + each) * kLanes + lane;
            if (block < blocks) merges[round].add(held[round][each], pivot);
          }
        }
      }
#pragma unroll
      for (int round = 0; round < kRoundsAtOnce; ++round) {
        merges[round].template gather<kLanes>();
        const float2 merged = merges[round].finish(blocks, pivots[round]);
        const int row = first + (round0 + round) * kRows;
        if (lane != 0 || row >= T::kBlockM) continue;
        store_shared(shared.merged(at.index, row), __float_as_uint(merged.x));
        store_shared(shared.merged(at.index, row) + 4, __float_as_uint(merged.y));
      }
    }
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(shared.merged_full(at.index));
  }
}

}  // namespace vitune
