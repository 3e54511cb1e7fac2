// templates/norm_backward/column_sums.cuh -- Sums over a CTA's rows of dy x^ and of dy, in
// registers until there are no more rows, then one part in memory for each CTA.
#pragma once

#include "norm_backward/config_rows.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
class NormBackwardColumnSums {
  using T = NormBackwardTraits<C>;
  static constexpr int kSums = T::kColumnSums;

 public:
  __device__ __forceinline__ NormBackwardColumnSums() {
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
      for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
        for (int j = 0; j < T::kVector; ++j) sums_[sum][i][j] = 0;
      }
    }
  }

  // Adds one element of a row.
  __device__ __forceinline__ void add(int i, int j, float dy, float normed) {
    if constexpr (C::kDweight) sums_[0][i][j] += dy * normed;
    if constexpr (C::kDbias) sums_[kSums - 1][i][j] += dy;
  }

  // Behind the last row: this CTA's part, in an order that is always the same. Every thread of the
  // CTA takes part. `shared`: the geometry's column_bytes().
  __device__ __forceinline__ void write(float* partials, u32 shared) {
    add_rows_of_warp();
    const int thread = int(threadIdx.x);
    const int team = thread / T::kTeamThreads;
    const bool has_sums = thread % T::kTeamThreads < T::kRowThreads;
    // From team to team: a word is written and read by the threads of its columns alone.
#pragma unroll 1
    for (int next = 1; next < T::kTeams; ++next) {
      if (team == next - 1 && has_sums) put(shared);
      __syncthreads();
      if (team == next && has_sums) take(shared);
    }
    if (team == T::kTeams - 1 && has_sums) store(partials + i64(blockIdx.x) * kSums * T::kColumns);
  }

 private:
  // Rows of one warp have the same columns at a distance of kRowThreads lanes.
  __device__ __forceinline__ void add_rows_of_warp() {
#pragma unroll
    for (int mask = T::kRowThreads; mask < kWarpSize; mask *= 2) {
#pragma unroll
      for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
        for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
          for (int j = 0; j < T::kVector; ++j) {
            sums_[sum][i][j] += __shfl_xor_sync(0xffffffffu, sums_[sum][i][j], mask);
          }
        }
      }
    }
  }
  static __device__ __forceinline__ u32 word(u32 shared, int sum, int i, int j) {
    return shared + 4 * (sum * T::kPieces * T::kStep + T::column(i) + j);
  }
  __device__ __forceinline__ void put(u32 shared) const {
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
      for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
        for (int j = 0; j < T::kVector; ++j) {
          store_shared(word(shared, sum, i, j), __float_as_uint(sums_[sum][i][j]));
        }
      }
    }
  }
  __device__ __forceinline__ void take(u32 shared) {
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
      for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
        for (int j = 0; j < T::kVector; ++j) {
          sums_[sum][i][j] += __uint_as_float(load_shared(word(shared, sum, i, j)));
        }
      }
    }
  }
  __device__ __forceinline__ void store(float* part) const {
    using Part = Vector<2, T::kVector>;
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
      for (int i = 0; i < T::kPieces; ++i) {
        if (!T::has(i)) continue;
        store_piece(part + sum * T::kColumns + T::column(i), Part::pack(sums_[sum][i]));
      }
    }
  }

  typename T::Values sums_[max_of(kSums, 1)];
};

}  // namespace vitune
