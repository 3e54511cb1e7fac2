// templates/attention_backward/dkv_sm90.cuh -- The pass of the family sm90 with rows of keys: dK
// and dV.
//
//   S' = c K Q'     P' = exp(S' - L)     dV = P' dO     dP' = V dO'
//   dS' = P' o (dP' - delta)             dK = c dS' Q
//
// A persistent CTA as in dq_sm90.cuh: K and V of its keys come once, Q and dO of all query heads
// that share them pass by in steps, with the numbers that the other pass wrote of each query.
// Scores are transposed, so that the accumulators of P' and dS', rounded, are the first operands of
// their products. All that is added to a gradient is added by one thread, step after step.
#pragma once

#include "attention_backward/items_sm90.cuh"
#include "attention_backward/rows_sm90.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/hold.cuh"

namespace vitune {

// All copies of the pass, by one thread.
template <class T>
__device__ __forceinline__ void dkv_produce(const AttentionBackwardParams& p,
                                            const AttentionBackwardTensorMaps& maps,
                                            const BackwardShared<T>& shared, int items) {
  const int kv_heads = int(u32(p.call.heads) / u32(p.call.heads_per_kv));
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < items; index += gridDim.x, rows_phase ^= 1) {
    const BackwardItem<T, true> item(p, index, kv_heads);
    wait_for_loaded(shared.rows_empty(), rows_phase);
    load_row_tiles<T, 2>(shared.rows(0), {maps.k, maps.v}, shared.rows_full(), item.row0, item.head,
                         item.batch);
#pragma unroll 1
    for (int i = 0; i < p.call.heads_per_kv; ++i) {
      const int head = item.head * p.call.heads_per_kv + i;
      const float* const stats =
          p.delta + i64(item.batch * p.call.heads + head) * 2 * T::kStatsRows;
#pragma unroll 1
      for (int step = item.first_step; step < item.end_step; ++step, at.advance()) {
        const u32 full = shared.full(at.index);
        const int row = step * T::kStep;
        const u32 stats_bytes = 8 * min(T::kStep, T::kStatsRows - row);
        wait_for_loaded(shared.empty(at.index), at.phase);
        mbarrier_expect(full, T::kStageBytes + stats_bytes);
        load_step_tiles<T>(shared, at.index, maps.q, maps.dout, row, head, item.batch);
        copy_bytes(shared.stats(at.index), u64(stats + 2 * row), stats_bytes, full);
      }
    }
  }
}

// A warpgroup's 64 keys.
template <class T>
struct KeyRows : GroupOfRows<T> {
  using GroupOfRows<T>::GroupOfRows;
  using GroupOfRows<T>::row;
  RowOperand<T> k, v;
  float dk[T::kHeadDim / 2], dv[T::kHeadDim / 2];

  // From the rows' tiles, whose copies are complete.
  __device__ __forceinline__ void begin() {
    k.load(this->shared.rows(0), this->row0 % T::kBlockRows);
    v.load(this->shared.rows(1), this->row0 % T::kBlockRows);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0.f;
  }

  // Scores of the sixteen queries number `i` of step number `number` become weights. Queries that
  // are not there have an infinite log-sum-exp: no weight. kDiagonal: some query does not see all
  // of these keys.
  template <bool kDiagonal, int kValues>
  __device__ __forceinline__ void weigh(float (&s)[kValues], int i, int number, u32 stats) const {
    weigh_queries(s, i, load_shared_16(stats + i * 128), this->scale, [&](int j) {
      const int query = number * T::kStep + 16 * i + j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2;
      return !kDiagonal || row() + j / 2 % 2 * 8 <= query;
    });
  }

  // The last step's products are done, and its slot is released.
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) {
      hold(dk[i]);
      hold(dv[i]);
    }
    this->release_before();
  }
};

// Step number `number`, of kWidth queries.
template <int kWidth, bool kDiagonal, class Rows>
__device__ __forceinline__ void dkv_step(Rows& rows, int number) {
  using T = typename Rows::Pass;
  using E = Element<T::kElement>;
  const int slot = rows.at.index;
  float s[kWidth / 2], dp[kWidth / 2];
  StepFragments<kWidth> weights;
  mbarrier_wait(rows.shared.full(slot), rows.at.phase);
  multiply_over_head<T, kWidth>(s, rows.k, rows.shared.first(slot));
  multiply_over_head<T, kWidth>(dp, rows.v, rows.shared.second(slot));
  const auto kept = rows.template begin_step<kWidth>(number);
  wgmma_wait<1>();  // the scores are there, and the products of the step before are done
  rows.release_before();
  const u32 stats = rows.shared.stats(rows.at.index) + threadIdx.x % 4 * 16;
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) {
    rows.template weigh<kDiagonal>(s, i, number, stats);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int pair = 8 * i + 2 * j;
      weights[i][j] = E::pack(kept.weight(s[pair], pair), kept.weight(s[pair + 1], pair + 1));
    }
  }
  multiply_over_step<T, kWidth>(rows.dv, weights, rows.shared.second(slot));
  wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
  for (int i = 0; i < kWidth / 16; ++i) {
    differentiate_queries<T>(rows.ds[i], s, dp, i, load_shared_16(stats + i * 128 + 64), kept);
  }
  multiply_over_step<T, kWidth>(rows.dk, rows.ds, rows.shared.first(slot));
  wgmma_wait<1>();  // the weights' registers are free
  hold_fragments(weights);
  rows.end_step();
}

// All steps over the queries of a head from `first` on, by a warpgroup.
template <class Rows>
__device__ __forceinline__ void dkv_steps(Rows& rows, int first) {
  using T = typename Rows::Pass;
  if constexpr (T::kWholeSteps > 0) {
    // How many there are is kept from the compiler: two steps in a row would be mixed.
#pragma unroll 1
    for (int step = first; step < recomputed(T::kWholeSteps); ++step) {
      if (T::kCausal && step * T::kStep < rows.row0 + kGroupRows - 1) {
        dkv_step<T::kStep, T::kCausal>(rows, step);
      } else {
        dkv_step<T::kStep, false>(rows, step);
      }
    }
  }
  if constexpr (T::kTail > 0) {
    if (!T::kCausal || first < T::kSteps) {
      dkv_step<T::kTailWidth, T::kCausal>(rows, T::kWholeSteps);
    }
  }
}

// begin_head(rows, head_index) comes before the first step of each query head.
template <class Rows, class BeginHead>
__device__ __forceinline__ void dkv_consume(const AttentionBackwardParams& p,
                                            const BackwardShared<typename Rows::Pass>& shared,
                                            int items, BeginHead&& begin_head) {
  using T = typename Rows::Pass;
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
      release_tile<1>(shared.rows_empty());
#pragma unroll 1
      for (int step = p.call.heads_per_kv * (item.end_step - item.first_step); step > 0; --step) {
        pass_step<T>(shared, at);
      }
      continue;
    }
    Rows rows(shared, at, p.call.scale * kLog2E, row0);
    rows.begin();
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
#pragma unroll 1
    for (int i = 0; i < p.call.heads_per_kv; ++i) {
      begin_head(rows, item.batch * p.call.heads + item.head * p.call.heads_per_kv + i);
      dkv_steps(rows, item.first_step);
    }
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(shared.rows_empty());
    store_dkv(p, rows, item, row0, shared.staging(group));
  }
}

// The pass with rows of a kind.
template <class Rows, class BeginHead>
__device__ __forceinline__ void dkv_pass(const AttentionBackwardParams& p,
                                         const AttentionBackwardTensorMaps& maps,
                                         BeginHead&& begin_head) {
  using T = typename Rows::Pass;
  using Shared = BackwardShared<T>;
  const int items = p.call.batch * int(u32(p.call.heads) / u32(p.call.heads_per_kv)) * T::kBlocks;
  run_pass<T, Shared>(
      maps.k, maps.q, [&](const Shared& shared) { dkv_produce<T>(p, maps, shared, items); },
      [&](const Shared& shared) { dkv_consume<Rows>(p, shared, items, begin_head); });
}

template <class Config>
__device__ __forceinline__ void attention_backward_dkv_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardTensorMaps& maps) {
  using Rows = KeyRows<KeyPass<Config>>;
  dkv_pass<Rows>(p, maps, [](Rows&, int) {});
}

}  // namespace vitune
