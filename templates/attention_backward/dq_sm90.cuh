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
#include "attention_backward/rows_sm90.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/hold.cuh"

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
    load_row_tiles<T, 3>(shared.rows(0), {maps.q, maps.dout, maps.out}, shared.rows_full(),
                         item.row0, item.head, item.batch);
#pragma unroll 1
    for (int step = item.first_step; step < item.end_step; ++step, at.advance()) {
      mbarrier_wait(shared.empty(at.index), at.phase ^ 1);
      mbarrier_expect(shared.full(at.index), T::kStageBytes);
      load_step_tiles<T>(shared, at.index, maps.k, maps.v, step * T::kStep, kv_head, item.batch);
    }
  }
}

// A warpgroup's 64 queries.
template <class T>
struct QueryRows : GroupOfRows<T> {
  using E = Element<T::kElement>;
  using GroupOfRows<T>::GroupOfRows;
  using GroupOfRows<T>::row;
  RowOperand<T> q, dout;
  float lse[2], delta[2];  // of this thread's two rows
  float sums[T::kHeadDim / 2];

  // From the rows' tiles, whose copies are complete.
  __device__ __forceinline__ void begin(const float* lse_of_head) {
    const int group_row = this->row0 % T::kBlockRows;
    q.load(this->shared.rows(0), group_row);
    dout.load(this->shared.rows(1), group_row);
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

  // Scores of step number `number` become weights. Of its keys the first kLimit are there;
  // kDiagonal: some row does not see all of them.
  template <int kWidth, int kLimit, bool kDiagonal>
  __device__ __forceinline__ void weigh(float (&s)[kWidth / 2], int number) const {
    const int key0 = number * T::kStep;
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      s[i] = exp2_approx(__fmaf_rn(s[i], this->scale, -lse[i / 2 % 2]));
      const int key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      const bool seen = (i / 4 * 8 + 8 <= kLimit || key < kLimit) &&
                        (!kDiagonal || key0 + key <= row() + i / 2 % 2 * 8);
      // A key that is not there has a score of 0, whose weight may be infinite.
      if (!seen) s[i] = 0.f;
    }
  }

  // The last step's products are done, and its slot is released.
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) hold(sums[i]);
    this->release_before();
  }

 private:
  // delta = rowsum(dO o O), a quad's parts of two rows.
  __device__ __forceinline__ void sum_deltas(int group_row) {
    delta[0] = delta[1] = 0.f;
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      u32 gradient[4], out[4];
      RowOperand<T>::load_fragment(gradient, this->shared.rows(1), group_row, step);
      RowOperand<T>::load_fragment(out, this->shared.rows(2), group_row, step);
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

// Step number `number`, of kWidth keys.
template <int kWidth, int kLimit, bool kDiagonal, class Rows>
__device__ __forceinline__ void dq_step(Rows& rows, int number) {
  using T = typename Rows::Pass;
  const int slot = rows.at.index;
  float s[kWidth / 2], dp[kWidth / 2];
  mbarrier_wait(rows.shared.full(slot), rows.at.phase);
  multiply_over_head<T, kWidth>(s, rows.q, rows.shared.first(slot));
  multiply_over_head<T, kWidth>(dp, rows.dout, rows.shared.second(slot));
  const auto kept = rows.template begin_step<kWidth>(number);
  wgmma_wait<1>();  // the scores are there, and the products of the step before are done
  rows.release_before();
  rows.template weigh<kWidth, kLimit, kDiagonal>(s, number);
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kWidth / 2; i += 2) {
    const float delta = rows.delta[i / 2 % 2];
    rows.ds[i / 8][i / 2 % 4] = Element<T::kElement>::pack(
        s[i] * kept.gradient(dp[i], delta, i), s[i + 1] * kept.gradient(dp[i + 1], delta, i + 1));
  }
  if constexpr (kWidth % 16 == 8) rows.ds[kWidth / 16][2] = rows.ds[kWidth / 16][3] = 0;
  multiply_over_step<T, kWidth>(rows.sums, rows.ds, rows.shared.first(slot));
  rows.end_step();
}

// All steps up to `end`, by a warpgroup.
template <class Rows>
__device__ __forceinline__ void dq_steps(Rows& rows, int end) {
  using T = typename Rows::Pass;
  if constexpr (T::kWholeSteps > 0) {
    const int whole = min(end, T::kWholeSteps);
    // How many there are is kept from the compiler: two steps in a row would be mixed.
#pragma unroll 1
    for (int step = 0; step < recomputed(whole); ++step) {
      if (T::kCausal && step * T::kStep + T::kStep > rows.row0) {
        dq_step<T::kStep, T::kStep, T::kCausal>(rows, step);
      } else {
        dq_step<T::kStep, T::kStep, false>(rows, step);
      }
    }
  }
  if constexpr (T::kTail > 0) {
    if (!T::kCausal || end > T::kWholeSteps) {
      dq_step<T::kTailWidth, T::kTail, T::kCausal>(rows, T::kWholeSteps);
    }
  }
}

// begin_head(rows, head_index) comes before the first step of a head's rows.
template <class Rows, class BeginHead>
__device__ __forceinline__ void dq_consume(const AttentionBackwardParams& p,
                                           const BackwardShared<typename Rows::Pass>& shared,
                                           int items, BeginHead&& begin_head) {
  using T = typename Rows::Pass;
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
      for (int step = item.first_step; step < item.end_step; ++step) pass_step<T>(shared, at);
      continue;
    }
    Rows rows(shared, at, p.call.scale * kLog2E, row0);
    begin_head(rows, item.head_index);
    rows.begin(p.call.lse + i64(item.head_index) * T::kQueries);
    rows.write_stats(p.delta + i64(item.head_index) * 2 * T::kStatsRows);
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
    dq_steps(rows, item.end_step);
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(shared.rows_empty());
    store_dq(p, rows, item, row0, shared.staging(group));
  }
}

// The pass with rows of a kind.
template <class Rows, class BeginHead>
__device__ __forceinline__ void dq_pass(const AttentionBackwardParams& p,
                                        const AttentionBackwardTensorMaps& maps,
                                        BeginHead&& begin_head) {
  using T = typename Rows::Pass;
  using Shared = BackwardShared<T>;
  const int items = p.call.batch * p.call.heads * T::kBlocks;
  run_pass<T, Shared>(
      maps.q, maps.k, [&](const Shared& shared) { dq_produce<T>(p, maps, shared, items); },
      [&](const Shared& shared) { dq_consume<Rows>(p, shared, items, begin_head); });
}

template <class Config>
__device__ __forceinline__ void attention_backward_dq_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardTensorMaps& maps) {
  using Rows = QueryRows<QueryPass<Config>>;
  dq_pass<Rows>(p, maps, [](Rows&, int) {});
}

}  // namespace vitune
