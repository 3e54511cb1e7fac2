// templates/attention_backward/one_pass_dq.cuh -- dQ of a step, in the family sm90_one_pass.
//
//   dQ' = c K' dS'      over the keys of a block, added to those of the blocks before
//
// The product is transposed: its rows are columns of the head, so that a step may have any number
// of queries. Between two blocks of keys its sums wait in scratch memory, where each thread finds
// what it wrote itself: program order is all the order that they need.
#pragma once

#include "attention_backward/one_pass_shared.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/hold.cuh"
#include "primitives/load.cuh"
#include "primitives/shared.cuh"
#include "primitives/stmatrix_trans.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// A step's part of dQ, 64 columns of the head from 64 * block on, by a warpgroup.
template <class T, int kWidth>
struct OnePassQueryGradients {
  using E = Element<T::kElement>;
  float sums[kWidth / 2];

  // True if this warp's 16 columns are there.
  static __device__ __forceinline__ bool is_there(int block) {
    return 64 * block + 16 * warp() < T::kHeadDim;
  }
  static __device__ __forceinline__ int warp() { return threadIdx.x / kWarpSize % 4; }

  // From what keep() wrote at `kept`, or from nothing.
  __device__ __forceinline__ void begin(const float* kept, bool is_first) {
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) sums[i] = 0.f;
    if (is_first) return;
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      const uint4 four = load_past_l1(kept + i * 4 * kGroupThreads);
      sums[4 * i] = __uint_as_float(four.x);
      sums[4 * i + 1] = __uint_as_float(four.y);
      sums[4 * i + 2] = __uint_as_float(four.z);
      sums[4 * i + 3] = __uint_as_float(four.w);
    }
  }
  // Adds the products over a block's keys, and waits for them. In the last block only those that
  // are there: behind them the tile of gradients may hold anything.
  __device__ __forceinline__ void multiply(u32 keys, u32 gradients, int block, bool is_last) {
    constexpr int kSteps = T::kBlockKeys / 16, kLastSteps = ceil_div(T::kLastKeys, 16);
    const u64 along = descriptor_k_major<128>(gradients);
    const u64 across = descriptor_mn_major<T::kSwizzle>(
        keys + 64 * block / T::RowTile::kAtomColumns * T::RowTile::kAtomBytes,
        T::RowTile::kAtomBytes);
    if (kLastSteps < kSteps && is_last) {
      multiply_steps<kLastSteps>(across, along);
    } else {
      multiply_steps<kSteps>(across, along);
    }
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) hold(sums[i]);
  }
  // Scratch memory: `at` is this thread's first place, four numbers at a time.
  __device__ __forceinline__ void keep(float* at) const {
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      store_chunk<16>(at + i * 4 * kGroupThreads,
                      {__float_as_uint(sums[4 * i]), __float_as_uint(sums[4 * i + 1]),
                       __float_as_uint(sums[4 * i + 2]), __float_as_uint(sums[4 * i + 3])});
    }
  }

  // Writes `scale` times this warp's columns of `rows` queries to `to`, rows `stride` elements
  // apart, 32 queries at a time through the warp's staging.
  __device__ __forceinline__ void store(u16* to, long long stride, int rows, u32 staging, int block,
                                        float scale) const {
    // Not kept in registers between steps.
    const int lane = recomputed(threadIdx.x % kWarpSize), column = 64 * block + 16 * warp();
#pragma unroll
    for (int query0 = 0; query0 < kWidth; query0 += 32) {
      __syncwarp();  // what was staged before may still be read
#pragma unroll
      for (int sixteen = query0; sixteen < min_of(query0 + 32, kWidth); sixteen += 16) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = sixteen / 2 + 2 * i;
          words[i] = E::pack(sums[at] * scale, sums[at + 1] * scale);
        }
        stmatrix_x4_trans(
            staging + place(sixteen - query0 + lane / 16 * 8 + lane % 8, lane / 8 % 2), words);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < min_of(32, kWidth - query0) / 16; ++i) {
        const int row = 16 * i + lane / 2, chunk = lane % 2;
        if (query0 + row < rows && column + 8 * chunk < T::kHeadDim) {
          store_chunk<16>(to + (query0 + row) * stride + column + 8 * chunk,
                          load_shared_16(staging + place(row, chunk)));
        }
      }
    }
  }

 private:
  template <int kSteps>
  __device__ __forceinline__ void multiply_steps(u64 across, u64 along) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Wgmma<T::kElement, kWidth>::shared_a_across(
          sums, descriptor_at(across, step * 16 * T::kSwizzle),
          descriptor_at(along, T::GradientTile::step_offset(step)), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
  // Rows of 32 bytes whose halves trade places in every other four rows: no bank conflicts.
  static __device__ __forceinline__ u32 place(int row, int chunk) {
    return row * 32 + (chunk ^ (row / 4 % 2)) * 16;
  }
};

}  // namespace vitune
