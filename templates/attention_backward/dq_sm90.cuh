// templates/attention_backward/dq_sm90.cuh -- The pass of the family sm90 with rows of queries: dQ,
// and what the pass over keys needs of each query.
//
//   S = c Q K'     P = exp(S - L)     dP = dO V'     delta = rowsum(dO o O)
//   dS = P o (dP - delta)             dQ = c dS K
//
// A persistent CTA: warpgroups with 64 queries each, and a warp that copies. Q, dO and O of its
// queries come once, K and V pass by in steps. P and dS are never in memory: the accumulator that
// holds dS, rounded, is the first operand of its product with K. All that is added to dQ is added
// by one thread, step after step, so bits repeat.
#pragma once

#include "attention_backward/items_sm90.cuh"
#include "attention_backward/products_sm90.cuh"
#include "attention_backward/shared_sm90.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/hold.cuh"
#include "primitives/math.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// All copies of the pass, by one thread.
template <class T>
__device__ __forceinline__ void dq_produce(const AttentionBackwardParams& p,
                                           const AttentionBackwardTensorMaps& maps,
                                           const BackwardShared<T>& shared, int items) {
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < items; index += gridDim.x, rows_phase ^= 1) {
    const BackwardItem<T, false> item(p, index, p.call.heads);
    const int kv_head = int(u32(item.head) / u32(p.call.heads_per_kv));
    wait_for_loaded(shared.rows_empty(), rows_phase);
    mbarrier_expect(shared.rows_full(), 3 * T::RowTile::kBytes);
    const void* const row_maps[3] = {maps.q, maps.dout, maps.out};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
          shared.rows(i), row_maps[i], shared.rows_full(), item.row0, item.head, item.batch);
    }
#pragma unroll 1
    for (int step = item.first_step; step < item.end_step; ++step, at.advance()) {
      const u32 full = shared.full(at.index);
      mbarrier_wait(shared.empty(at.index), at.phase ^ 1);
      mbarrier_expect(full, T::kStageBytes);
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.first(at.index), maps.k, full,
                                                              step * T::kStep, kv_head, item.batch);
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.second(at.index), maps.v, full,
                                                              step * T::kStep, kv_head, item.batch);
    }
  }
}

// A warpgroup's 64 queries.
template <class T>
struct QueryRows {
  using E = Element<T::kElement>;
  const BackwardShared<T>& shared;
  PipelineState<T::kStages>& at;
  float scale;  // of the scores, for exponents of two
  int row0;     // of the warpgroup
  RowOperand<T> q, dout;
  float lse[2], delta[2];  // of this thread's two rows; the log-sum-exp for exponents of two
  float sums[T::kHeadDim / 2];
  int before;                  // the slot of the step before, -1 for none
  StepFragments<T::kStep> ds;  // which products of the step before may still read

  // This thread's first row.
  __device__ __forceinline__ int row() const {
    return row0 + threadIdx.x / kWarpSize % 4 * 16 + threadIdx.x % kWarpSize / 4;
  }

  // From the rows' tiles, whose copies are complete.
  __device__ __forceinline__ void begin(const float* lse_of_head) {
    const int group_row = row0 % T::kBlockRows;
    q.load(shared.rows(0), group_row);
    dout.load(shared.rows(1), group_row);
    sum_deltas(group_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row without keys, and one behind the last, has no weights: 2^(x - inf) = 0.
      const int at_row = row() + 8 * half;
      const float value = at_row < T::kQueries ? lse_of_head[at_row] : minus_infinity();
      lse[half] = value == minus_infinity() ? -value : value * kLog2E;
    }
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) sums[i] = 0.f;
    before = -1;
#pragma unroll
    for (auto& fragment : ds) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0;
  }

  // What the other pass needs: of sixteen queries their log-sum-exps, then their deltas, in the
  // order in which its threads read four of them at once.
  __device__ __forceinline__ void write_stats(float* stats_of_head) const {
    const int first = row() & ~15, of_sixteen = row() & 7;
    if (threadIdx.x % 4 != 0 || first >= T::kStatsRows) return;
    float* const to = stats_of_head + 2 * first + of_sixteen / 2 * 4 + of_sixteen % 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to[2 * half] = lse[half];
      to[16 + 2 * half] = delta[half];
    }
  }

  // A step of kWidth keys, of which the first kLimit are there. kDiagonal: some row does not see
  // all of its keys.
  template <int kWidth, int kLimit, bool kDiagonal>
  __device__ __forceinline__ void step(int key0) {
    float s[kWidth / 2], dp[kWidth / 2];
    mbarrier_wait(shared.full(at.index), at.phase);
    multiply_over_head<T, kWidth>(s, q, shared.first(at.index));
    multiply_over_head<T, kWidth>(dp, dout, shared.second(at.index));
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(ds);
    if (before >= 0) release_tile<1>(shared.empty(before));
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      s[i] = exp2_approx(__fmaf_rn(s[i], scale, -lse[i / 2 % 2]));
      const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      const bool seen = (i / 4 * 8 + 8 <= kLimit || key < kLimit) &&
                        (!kDiagonal || key0 + key <= row() + i / 2 % 2 * 8);
      // A key that is not there has a score of 0, whose weight may be infinite.
      if (!seen) s[i] = 0.f;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 2) {
      const int half = i / 2 % 2;
      ds[i / 8][i / 2 % 4] =
          E::pack(s[i] * (dp[i] - delta[half]), s[i + 1] * (dp[i + 1] - delta[half]));
    }
    if constexpr (kWidth % 16 == 8) ds[kWidth / 16][2] = ds[kWidth / 16][3] = 0;
    multiply_over_step<T, kWidth>(sums, ds, shared.first(at.index));
    before = at.index;
    at.advance();
  }

  // The last step's products are done, and its slot is released.
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
    hold_fragments(ds);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) hold(sums[i]);
    if (before >= 0) release_tile<1>(shared.empty(before));
  }

 private:
  // delta = rowsum(dO o O), a quad's parts of two rows.
  __device__ __forceinline__ void sum_deltas(int group_row) {
    delta[0] = delta[1] = 0.f;
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      u32 gradient[4], out[4];
      RowOperand<T>::load_fragment(gradient, shared.rows(1), group_row, step);
      RowOperand<T>::load_fragment(out, shared.rows(2), group_row, step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        delta[i % 2] = __fmaf_rn(E::low(gradient[i]), E::low(out[i]), delta[i % 2]);
        delta[i % 2] = __fmaf_rn(E::high(gradient[i]), E::high(out[i]), delta[i % 2]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 1);
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 2);
    }
  }
};

// All steps of an item, by a warpgroup.
template <class T>
__device__ __forceinline__ void dq_steps(QueryRows<T>& rows, const BackwardItem<T, false>& item) {
  if constexpr (T::kWholeSteps > 0) {
    const int whole = min(item.end_step, T::kWholeSteps);
    // How many there are is kept from the compiler: two steps in a row would be mixed.
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

template <class T>
__device__ __forceinline__ void dq_consume(const AttentionBackwardParams& p,
                                           const BackwardShared<T>& shared, int items) {
  const int group = threadIdx.x / kGroupThreads;
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < items; index += gridDim.x, rows_phase ^= 1) {
    const BackwardItem<T, false> item(p, index, p.call.heads);
    const int row0 = item.row0 + group * kGroupRows;
    mbarrier_wait(shared.rows_full(), rows_phase);
    if (row0 >= T::kQueries) {
      release_tile<1>(shared.rows_empty());
#pragma unroll 1
      for (int step = item.first_step; step < item.end_step; ++step, at.advance()) {
        mbarrier_wait(shared.full(at.index), at.phase);
        release_tile<1>(shared.empty(at.index));
      }
      continue;
    }
    QueryRows<T> rows{shared, at, p.call.scale * kLog2E, row0};
    rows.begin(p.call.lse + i64(item.head_index) * T::kQueries);
    rows.write_stats(p.delta + i64(item.head_index) * 2 * T::kStatsRows);
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
    dq_steps<T>(rows, item);
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

template <class Config>
__device__ __forceinline__ void attention_backward_dq_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = QueryPass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const BackwardShared<T> shared{shared_address(shared_memory)};
  const int items = p.call.batch * p.call.heads * T::kBlocks;
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.q);
    prefetch_map(maps.k);
  }
  if (threadIdx.x == 0) shared.init();
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) dq_produce<T>(p, maps, shared, items);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    dq_consume<T>(p, shared, items);
  }
}

}  // namespace vitune
