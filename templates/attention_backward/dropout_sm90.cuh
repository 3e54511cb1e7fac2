// templates/attention_backward/dropout_sm90.cuh -- Both passes of the family sm90 with dropout.
//
// dq_sm90.cuh and dkv_sm90.cuh with D, which is 0 or, where a weight is kept, the scale of those:
// dV = (P o D)' dO and dS = P o (D o dP - delta), where delta is as it is without dropout, for out
// has gone through it. The bits that say what is kept are drawn while products are under way.
#pragma once

#include "attention/dropout.cuh"
#include "attention_backward/dkv_sm90.cuh"
#include "attention_backward/dq_sm90.cuh"
// After what it is made of.
#include "attention_backward/dropout_params.cuh"

namespace vitune {

// The first of the sixteen rows that this thread's warp has of its warpgroup's.
__device__ __forceinline__ int first_row_of_warp(int row0) {
  return row0 + int(threadIdx.x) / kWarpSize % 4 * 16;
}

// Where rows are keys: of a warp's sixteen and 32 queries, a bit for each of a thread's values.
struct KeptKeys {
  u32 sixteens[2];  // of queries
  u32 odd_bytes;    // 0x1111 for an odd key, whose bytes are the upper ones of two

  // By whole warps, from multiples of sixteen on.
  __device__ __forceinline__ void draw(const DropoutCells& cells, int key0, int query0) {
    constexpr u32 kSigns = 0x80808080u;
    const int lane = int(threadIdx.x) % kWarpSize;
    const bool is_odd = (lane & 4) != 0;
    u32 kept[4];
    cells.draw(kept, query0 / 4 + (is_odd ? 4 : 0) + lane % 4, key0 / 4 + lane / 8);
    const u32 mine = (kept[0] & kSigns) | (kept[1] & kSigns) >> 1 | (kept[2] & kSigns) >> 2 |
                     (kept[3] & kSigns) >> 3;
    const u32 other = __shfl_xor_sync(0xffffffffu, mine, 4);
    sixteens[0] = is_odd ? other : mine;
    sixteens[1] = is_odd ? mine : other;
    odd_bytes = is_odd ? 0x1111u : 0u;
  }
  // All bits if value `j` of a thread's eight of sixteen queries is kept.
  __device__ __forceinline__ u32 value(int sixteen, int j) const {
    const int word = 2 * (j % 2) + j / 4;
    const u32 selector = u32(8 + j / 2 % 2 * 2) * 0x1111u + odd_bytes;
    return permute_bytes(sixteens[sixteen] << word, 0, selector);
  }
};

// ------------------------------------------------------------------------------------------ dQ

template <class T>
struct DroppedQueryRows : QueryRows<T> {
  using typename QueryRows<T>::E;
  DropoutCells cells;
  u32 kept_scale;  // as bits

  // As QueryRows has it.
  template <int kWidth, int kLimit, bool kDiagonal>
  __device__ __forceinline__ void step(int key0) {
    auto& [index, phase] = this->at;
    float s[kWidth / 2], dp[kWidth / 2];
    KeptRows<2> kept[ceil_div(kWidth, 32)];
    mbarrier_wait(this->shared.full(index), phase);
    multiply_over_head<T, kWidth>(s, this->q, this->shared.first(index));
    multiply_over_head<T, kWidth>(dp, this->dout, this->shared.second(index));
#pragma unroll
    for (int i = 0; i < ceil_div(kWidth, 32); ++i) {
      kept[i].draw(cells, first_row_of_warp(this->row0), key0 + 32 * i);
    }
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(this->ds);
    if (this->before >= 0) release_tile<1>(this->shared.empty(this->before));
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      s[i] = exp2_approx(__fmaf_rn(s[i], this->scale, -this->lse[i / 2 % 2]));
      const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      const bool seen = (i / 4 * 8 + 8 <= kLimit || key < kLimit) &&
                        (!kDiagonal || key0 + key <= this->row() + i / 2 % 2 * 8);
      // A key that is not there has a score of 0, whose weight may be infinite.
      if (!seen) s[i] = 0.f;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      const u32 factor = kept_scale & kept[i / 16].value(i / 4 % 4, i % 4);
      s[i] *= __fmaf_rn(dp[i], __uint_as_float(factor), -this->delta[i / 2 % 2]);
    }
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 2) this->ds[i / 8][i / 2 % 4] = E::pack(s[i], s[i + 1]);
    if constexpr (kWidth % 16 == 8) this->ds[kWidth / 16][2] = this->ds[kWidth / 16][3] = 0;
    multiply_over_step<T, kWidth>(this->sums, this->ds, this->shared.first(index));
    this->before = index;
    this->at.advance();
  }
};

// As dq_steps().
template <class T>
__device__ __forceinline__ void dropped_steps(DroppedQueryRows<T>& rows,
                                              const BackwardItem<T, false>& item) {
  if constexpr (T::kWholeSteps > 0) {
    const int whole = min(item.end_step, T::kWholeSteps);
#pragma unroll 1
    for (int step = 0; step < recomputed(whole); ++step) {
      const int key0 = step * T::kStep;
      if (T::kCausal && key0 + T::kStep > rows.row0) {
        rows.template step<T::kStep, T::kStep, T::kCausal>(key0);
      } else {
        rows.template step<T::kStep, T::kStep, false>(key0);
      }
    }
  }
  if constexpr (T::kTail > 0) {
    if (!T::kCausal || item.end_step > T::kWholeSteps) {
      rows.template step<T::kTailWidth, T::kTail, T::kCausal>(T::kWholeSteps * T::kStep);
    }
  }
}

// A warpgroup without rows goes through the steps of an item.
template <class T>
__device__ __forceinline__ void pass_steps(const BackwardShared<T>& shared,
                                           PipelineState<T::kStages>& at, int steps) {
  release_tile<1>(shared.rows_empty());
#pragma unroll 1
  for (; steps > 0; --steps, at.advance()) {
    mbarrier_wait(shared.full(at.index), at.phase);
    release_tile<1>(shared.empty(at.index));
  }
}

template <class T>
__device__ __forceinline__ void dq_consume_dropped(const AttentionBackwardDropoutParams& params,
                                                   const BackwardShared<T>& shared, int items) {
  const AttentionBackwardParams& p = params.backward;
  const int group = threadIdx.x / kGroupThreads;
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < items; index += gridDim.x, rows_phase ^= 1) {
    const BackwardItem<T, false> item(p, index, p.call.heads);
    const int row0 = item.row0 + group * kGroupRows;
    mbarrier_wait(shared.rows_full(), rows_phase);
    if (row0 >= T::kQueries) {
      pass_steps<T>(shared, at, item.end_step - item.first_step);
      continue;
    }
    DroppedQueryRows<T> rows{{shared, at, p.call.scale * kLog2E, row0}};
    rows.cells.begin(params.dropout, item.head_index);
    rows.kept_scale = __float_as_uint(params.dropout.scale);
    rows.begin(p.call.lse + i64(item.head_index) * T::kQueries);
    rows.write_stats(p.delta + i64(item.head_index) * 2 * T::kStatsRows);
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
    dropped_steps<T>(rows, item);
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(shared.rows_empty());

    const int warp = threadIdx.x / kWarpSize % 4, first = row0 + 16 * warp;
    store_gradients<T>(static_cast<u16*>(p.dq) + item.batch * p.dq_view.batch +
                           item.head * p.dq_view.head + first * p.dq_view.row,
                       p.dq_view.row, T::kQueries - first,
                       shared.staging(group) + 16 * warp * T::kStagingPitch, rows.sums,
                       p.call.scale);
  }
}

// ----------------------------------------------------------------------------------- dK and dV

template <class T>
struct DroppedKeyRows : KeyRows<T> {
  using typename KeyRows<T>::E;
  DropoutCells cells;
  u32 kept_scale;  // as bits

  // As KeyRows has it.
  template <int kWidth, bool kDiagonal>
  __device__ __forceinline__ void step(int query0) {
    auto& [index, phase] = this->at;
    float s[kWidth / 2], dp[kWidth / 2];
    StepFragments<kWidth> weights;
    KeptKeys kept[ceil_div(kWidth, 32)];
    mbarrier_wait(this->shared.full(index), phase);
    multiply_over_head<T, kWidth>(s, this->k, this->shared.first(index));
    multiply_over_head<T, kWidth>(dp, this->v, this->shared.second(index));
#pragma unroll
    for (int i = 0; i < ceil_div(kWidth, 32); ++i) {
      kept[i].draw(cells, first_row_of_warp(this->row0), query0 + 32 * i);
    }
    const auto factor = [&](int i, int j) {
      return __uint_as_float(kept_scale & kept[i / 2].value(i % 2, j));
    };
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(this->ds);
    if (this->before >= 0) release_tile<1>(this->shared.empty(this->before));
    const u32 stats = this->shared.stats(index) + threadIdx.x % 4 * 16;
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const u32 lse = j < 4 ? (j % 2 == 0 ? four.x : four.y) : (j % 2 == 0 ? four.z : four.w);
        float& weight = s[8 * i + j];
        weight = exp2_approx(__fmaf_rn(weight, this->scale, -__uint_as_float(lse)));
        if constexpr (kDiagonal) {
          const int query = query0 + 16 * i + j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2;
          if (this->row() + j / 2 % 2 * 8 > query) weight = 0.f;
        }
      }
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        weights[i][j / 2] =
            E::pack(s[8 * i + j] * factor(i, j), s[8 * i + j + 1] * factor(i, j + 1));
      }
    }
    multiply_over_step<T, kWidth>(this->dv, weights, this->shared.second(index));
    wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128 + 64);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float low = __uint_as_float(j < 4 ? four.x : four.z);
        const float high = __uint_as_float(j < 4 ? four.y : four.w);
        const int at = 8 * i + j;
        this->ds[i][j / 2] = E::pack(s[at] * __fmaf_rn(dp[at], factor(i, j), -low),
                                     s[at + 1] * __fmaf_rn(dp[at + 1], factor(i, j + 1), -high));
      }
    }
    multiply_over_step<T, kWidth>(this->dk, this->ds, this->shared.first(index));
    wgmma_wait<1>();  // the weights' registers are free
    hold_fragments(weights);
    this->before = index;
    this->at.advance();
  }
};

// As dkv_steps().
template <class T>
__device__ __forceinline__ void dropped_steps(DroppedKeyRows<T>& rows,
                                              const BackwardItem<T, true>& item) {
  if constexpr (T::kWholeSteps > 0) {
#pragma unroll 1
    for (int step = item.first_step; step < recomputed(T::kWholeSteps); ++step) {
      const int query0 = step * T::kStep;
      if (T::kCausal && query0 < rows.row0 + kGroupRows - 1) {
        rows.template step<T::kStep, T::kCausal>(query0);
      } else {
        rows.template step<T::kStep, false>(query0);
      }
    }
  }
  if constexpr (T::kTail > 0) {
    if (!T::kCausal || item.first_step < T::kSteps) {
      rows.template step<T::kTailWidth, T::kCausal>(T::kWholeSteps * T::kStep);
    }
  }
}

template <class T>
__device__ __forceinline__ void dkv_consume_dropped(const AttentionBackwardDropoutParams& params,
                                                    const BackwardShared<T>& shared, int items) {
  const AttentionBackwardParams& p = params.backward;
  const int group = threadIdx.x / kGroupThreads;
  const int kv_heads = int(u32(p.call.heads) / u32(p.call.heads_per_kv));
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < items; index += gridDim.x, rows_phase ^= 1) {
    const BackwardItem<T, true> item(p, index, kv_heads);
    const int row0 = item.row0 + group * kGroupRows;
    mbarrier_wait(shared.rows_full(), rows_phase);
    if (row0 >= T::kKeys) {
      pass_steps<T>(shared, at, p.call.heads_per_kv * (item.end_step - item.first_step));
      continue;
    }
    DroppedKeyRows<T> rows{{shared, at, p.call.scale * kLog2E, row0}};
    rows.kept_scale = __float_as_uint(params.dropout.scale);
    rows.begin();
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
#pragma unroll 1
    for (int i = 0; i < p.call.heads_per_kv; ++i) {
      const int head = item.head * p.call.heads_per_kv + i;
      rows.cells.begin(params.dropout, item.batch * p.call.heads + head);
      dropped_steps<T>(rows, item);
    }
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(shared.rows_empty());

    const int warp = threadIdx.x / kWarpSize % 4, first = row0 + 16 * warp;
    const u32 staging = shared.staging(group) + 16 * warp * T::kStagingPitch;
    store_gradients<T>(static_cast<u16*>(p.dk) + item.batch * p.dk_view.batch +
                           item.head * p.dk_view.head + first * p.dk_view.row,
                       p.dk_view.row, T::kKeys - first, staging, rows.dk, p.call.scale);
    store_gradients<T>(static_cast<u16*>(p.dv) + item.batch * p.dv_view.batch +
                           item.head * p.dv_view.head + first * p.dv_view.row,
                       p.dv_view.row, T::kKeys - first, staging, rows.dv, 1.f);
  }
}

// --------------------------------------------------------------------------------- the kernels

// What a pass begins with, and its producer. True for warps that compute.
template <class T, class Produce>
__device__ __forceinline__ bool computes(const BackwardShared<T>& shared, const void* first_map,
                                         const void* second_map, Produce&& produce) {
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(first_map);
    prefetch_map(second_map);
  }
  if (threadIdx.x == 0) shared.init();
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x < T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    return true;
  }
  if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
  if (threadIdx.x == T::kGroups * kGroupThreads) produce();
  return false;
}

template <class Config>
__device__ __forceinline__ void attention_backward_dq_sm90_dropout(
    const AttentionBackwardDropoutParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = QueryPass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const BackwardShared<T> shared{shared_address(shared_memory)};
  const int items = p.backward.call.batch * p.backward.call.heads * T::kBlocks;
  const auto produce = [&] { dq_produce<T>(p.backward, maps, shared, items); };
  if (computes<T>(shared, maps.q, maps.k, produce)) dq_consume_dropped<T>(p, shared, items);
}

template <class Config>
__device__ __forceinline__ void attention_backward_dkv_sm90_dropout(
    const AttentionBackwardDropoutParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = KeyPass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const BackwardShared<T> shared{shared_address(shared_memory)};
  const AttentionParams& call = p.backward.call;
  const int items = call.batch * int(u32(call.heads) / u32(call.heads_per_kv)) * T::kBlocks;
  const auto produce = [&] { dkv_produce<T>(p.backward, maps, shared, items); };
  if (computes<T>(shared, maps.k, maps.q, produce)) dkv_consume_dropped<T>(p, shared, items);
}

}  // namespace vitune
