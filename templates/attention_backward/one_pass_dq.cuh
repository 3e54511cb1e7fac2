// templates/attention_backward/one_pass_dq.cuh -- dQ in the family sm90_one_pass, by a warpgroup
// that makes nothing else.
//
//   dQ = c dS K      over the keys of a block, added to those of the blocks before
//
// A head of up to 64 columns is made transposed: the columns are the rows of the product, so that a
// step may have any number of queries. Wider ones have queries as rows. Between two blocks of keys
// the sums wait in scratch memory, where each thread finds what it wrote itself: program order is
// all the order that they need.
#pragma once

#include "attention_backward/one_pass_shared.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/evict_store.cuh"
#include "primitives/hold.cuh"
#include "primitives/load.cuh"
#include "primitives/shared.cuh"
#include "primitives/stmatrix_trans.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Sums of dQ in scratch memory: `at` is this thread's first place, four numbers at a time. kStay:
// L2 is to keep them.
template <bool kStay, int kSums>
__device__ __forceinline__ void read_sums(float (&sums)[kSums], const float* at) {
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float* const from = at + i * 4 * kGroupThreads;
    const uint4 four = kStay ? load_chunk_evict(from, evict_last()) : load_past_l1(from);
    sums[4 * i] = __uint_as_float(four.x);
    sums[4 * i + 1] = __uint_as_float(four.y);
    sums[4 * i + 2] = __uint_as_float(four.z);
    sums[4 * i + 3] = __uint_as_float(four.w);
  }
}
template <bool kStay, int kSums>
__device__ __forceinline__ void write_sums(const float (&sums)[kSums], float* at) {
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    float* const to = at + i * 4 * kGroupThreads;
    const uint4 four = {__float_as_uint(sums[4 * i]), __float_as_uint(sums[4 * i + 1]),
                        __float_as_uint(sums[4 * i + 2]), __float_as_uint(sums[4 * i + 3])};
    if constexpr (kStay) {
      store_chunk_evict(to, four, evict_last());
    } else {
      store_chunk<16>(to, four);
    }
  }
}

// A step's dQ, transposed, by a warpgroup.
template <class T, int kWidth, bool kTransposed>
struct OnePassQueryGradients {
  using E = Element<T::kElement>;
  static constexpr int kSums = kWidth / 2;

  // Issues the products over 16 keys, number `step` of a block.
  static __device__ __forceinline__ void multiply(float (&sums)[kSums], u32 keys, u32 gradients,
                                                  int step) {
    Wgmma<T::kElement, kWidth>::shared_a_across(
        sums,
        descriptor_at(descriptor_mn_major<T::kSwizzle>(keys, T::RowTile::kAtomBytes),
                      step * 16 * T::kSwizzle),
        descriptor_at(descriptor_k_major<128>(gradients), T::GradientTile::step_offset(step)),
        true);
  }
  // Writes `scale` times this warp's columns of `rows` queries to `to`, rows `stride` elements
  // apart, 32 queries at a time through the warp's staging.
  static __device__ __forceinline__ void store(const float (&sums)[kSums], u16* to,
                                               long long stride, int rows, u32 staging,
                                               float scale) {
    // Not kept in registers between steps.
    const int lane = recomputed(threadIdx.x % kWarpSize);
    const int column = 16 * (threadIdx.x / kWarpSize % 4);
    if (column >= T::kHeadDim) return;
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
          u16* const at = to + (query0 + row) * stride + column + 8 * chunk;
          const uint4 piece = load_shared_16(staging + place(row, chunk));
          if constexpr (T::kStaysInL2) {
            store_chunk_evict(at, piece, evict_first());
          } else {
            store_chunk<16>(at, piece);
          }
        }
      }
    }
  }

 private:
  // Rows of 32 bytes whose halves trade places in every other four rows: no bank conflicts.
  static __device__ __forceinline__ u32 place(int row, int chunk) {
    return row * 32 + (chunk ^ (row / 4 % 2)) * 16;
  }
};

// The same with queries as rows: of the 64 those behind the step's hold anything.
template <class T, int kWidth>
struct OnePassQueryGradients<T, kWidth, false> {
  static constexpr int kSums = T::kHeadDim / 2;

  static __device__ __forceinline__ void multiply(float (&sums)[kSums], u32 keys, u32 gradients,
                                                  int step) {
    Wgmma<T::kElement, T::kHeadDim>::template shared_a<false, true>(
        sums, descriptor_at(descriptor_k_major<128>(gradients), T::GradientTile::step_offset(step)),
        descriptor_at(descriptor_mn_major<T::kSwizzle>(keys, T::RowTile::kAtomBytes),
                      16 * T::kSwizzle * step),
        true);
  }
  static __device__ __forceinline__ void store(const float (&sums)[kSums], u16* to,
                                               long long stride, int rows, u32 staging,
                                               float scale) {
    const int row = 16 * (threadIdx.x / kWarpSize % 4);
    store_gradients<T, T::kStaysInL2>(to + row * stride, stride, min(rows, kWidth) - row, staging,
                                      sums, scale);
  }
};

// The warpgroup's way through the heads.
template <class T>
struct OnePassDq {
  const AttentionBackwardParams& p;
  const OnePassShared<T>& shared;
  PipelineState<T::kKeyStages> keys;
  PipelineState<2> exchange;  // of gradients of scores
  bool is_first, is_last;     // block of keys

  // Of the step that begins with query0, of the keys of this block and those before.
  template <int kWidth>
  __device__ __forceinline__ void step(int query0, int batch, int head) {
    using Gradients = OnePassQueryGradients<T, kWidth, T::kTransposedDq>;
    float sums[Gradients::kSums] = {};
    float* const kept = p.delta + i64(blockIdx.x) * T::kScratchSums +
                        query0 / T::kStep * T::kStepSums + threadIdx.x % kGroupThreads * 4;
    if (T::kBlocks > 1 && !is_first) read_sums<T::kStaysInL2>(sums, kept);
    mbarrier_wait(shared.gradients_full(exchange.index), exchange.phase);
    // In the last block only keys that are there: behind them the tile may hold anything.
    constexpr int kSteps = T::kBlockKeys / 16, kLastSteps = ceil_div(T::kLastKeys, 16);
    if (kLastSteps < kSteps && is_last) {
      multiply<Gradients, kLastSteps>(sums);
    } else {
      multiply<Gradients, kSteps>(sums);
    }
#pragma unroll
    for (float& sum : sums) hold(sum);
    release_tile<1>(shared.gradients_empty(exchange.index));
    if (T::kBlocks == 1 || is_last) {
      Gradients::store(sums,
                       static_cast<u16*>(p.dq) + batch * p.dq_view.batch + head * p.dq_view.head +
                           query0 * p.dq_view.row,
                       p.dq_view.row, T::kQueries - query0, shared.dq_staging(), p.call.scale);
    } else {
      write_sums<T::kStaysInL2>(sums, kept);
    }
    exchange.advance();
  }
  // Adds the products over the first 16 * kSteps keys of the block, and waits for them.
  template <class Gradients, int kSteps>
  __device__ __forceinline__ void multiply(float (&sums)[Gradients::kSums]) const {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      Gradients::multiply(sums, shared.keys(keys.index), shared.gradients(exchange.index), i);
    }
    wgmma_commit();
    wgmma_wait<0>();
  }

  // All queries, for a block of keys, which is there where gradients of its scores are.
  __device__ __forceinline__ void block(int index, int batch, int head) {
    is_first = index == 0;
    is_last = index == T::kBlocks - 1;
    if constexpr (T::kWholeSteps > 0) {
#pragma unroll 1
      for (int at = 0; at < recomputed(T::kWholeSteps); ++at) {
        step<T::kStep>(at * T::kStep, batch, head);
      }
    }
    if constexpr (T::kTail > 0) step<T::kTailWidth>(T::kWholeSteps * T::kStep, batch, head);
    release_tile<1>(shared.keys_empty(keys.index));
    keys.advance();
  }
};

}  // namespace vitune
