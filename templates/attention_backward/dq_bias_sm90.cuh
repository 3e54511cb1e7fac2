// templates/attention_backward/dq_bias_sm90.cuh -- The pass of the family sm90_bias with rows of
// queries: dQ, and what the other kernels need of each query.
//
//   S = c Q K' + bias     P = exp(S - L)     dP = dO V'     delta = rowsum(dO o O)
//   dS = P o (dP - delta)                    dQ = c dS K
//
// As dq_sm90.cuh, with the bias in the order of registers. It is -inf where there is no key. The
// log-sum-exp stays in natural units.
#pragma once

#include "attention_backward/bias_fragments_sm90.cuh"
#include "attention_backward/dq_sm90.cuh"

namespace vitune {

// All copies of the pass, by one thread.
template <class T>
__device__ __forceinline__ void dq_bias_produce(const AttentionBackwardSm90BiasParams& params,
                                                const AttentionBackwardTensorMaps& maps,
                                                const BackwardShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const UnitScores<T::kBlocks> scores(p);
  const BiasTiles<T> tiles{shared.base};
  BiasCopies<T> bias{reinterpret_cast<u64>(params.query_bias), scores.block};
  const int row0 = scores.block * T::kBlockRows;
  PipelineState<T::kStages> at;
  PipelineState<T::kRowSlots> rows_at;
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_at.advance()) {
    const SharedScores item(p, index);
    const u32 rows = tiles.rows(rows_at.index), rows_full = tiles.rows_full(rows_at.index);
    wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);
    mbarrier_expect(rows_full, 3 * T::RowTile::kBytes);
    const void* const row_maps[3] = {maps.q, maps.dout, maps.out};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
          rows + i * T::RowTile::kBytes, row_maps[i], rows_full, row0, item.head, item.batch);
    }
    if constexpr (T::kKeepsBias) bias.keep(tiles, item.entry, 0, T::kColumnFragments);
#pragma unroll 1
    for (int step = 0; step < T::kSteps; ++step, at.advance()) {
      const u32 full = shared.full(at.index);
      const int first = step * T::kBiasFragments;
      const int count = T::kKeepsBias ? 0 : min(T::kBiasFragments, T::kColumnFragments - first);
      wait_for_loaded(shared.empty(at.index), at.phase);
      mbarrier_expect(full, T::kStageBytes + bias.bytes(count));
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(
          shared.first(at.index), maps.k, full, step * T::kStep, item.head, item.batch);
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(
          shared.second(at.index), maps.v, full, step * T::kStep, item.head, item.batch);
      if constexpr (!T::kKeepsBias) bias.copy(tiles, at.index, full, item.entry, first, count);
    }
  }
}

// A warpgroup's 64 queries. `scale` is that of the scores, and `lse` in natural units.
template <class T>
struct BiasQueryRows : QueryRows<T> {
  using E = Element<T::kElement>;
  BiasTiles<T> tiles;
  int group;

  __device__ __forceinline__ BiasQueryRows(const BackwardShared<T>& shared,
                                           PipelineState<T::kStages>& at, float scale, int row0,
                                           const BiasTiles<T>& bias_tiles, int warpgroup)
      : QueryRows<T>(shared, at, scale, row0), tiles(bias_tiles), group(warpgroup) {}

  // From the rows' tiles at `rows`, whose copies are complete, and what load_lse() gave.
  __device__ __forceinline__ void begin(u32 rows, const float (&log_sums)[2]) {
    const int group_row = this->row0 % T::kBlockRows;
    this->q.load(rows, group_row);
    this->dout.load(rows + T::RowTile::kBytes, group_row);
    sum_deltas(rows, group_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row without keys, and one behind the last, has no weights: exp(x - inf) = 0.
      this->lse[half] = log_sums[half] == minus_infinity() ? -log_sums[half] : log_sums[half];
    }
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) this->sums[i] = 0.f;
  }

  // Step number `number`, of kWidth keys.
  template <int kWidth>
  __device__ __forceinline__ void step(int number) {
    float s[kWidth / 2], dp[kWidth / 2];
    const int slot = this->at.index;
    mbarrier_wait(this->shared.full(slot), this->at.phase);
    multiply_over_head<T, kWidth>(s, this->q, this->shared.first(slot));
    multiply_over_head<T, kWidth>(dp, this->dout, this->shared.second(slot));
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(this->ds);
    if (this->before >= 0) release_tile<1>(this->shared.empty(this->before));
    const u32 bias = tiles.group(T::kKeepsBias ? 0 : slot, group) +
                     (T::kKeepsBias ? number * (T::kStep / 16) * T::kFragmentBytes : 0) +
                     threadIdx.x % kGroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 8) {
      const BiasFragment<T::kBias> numbers(bias + i / 8 * T::kFragmentBytes);
#pragma unroll
      for (int j = 0; j < min_of(8, kWidth / 2 - i); ++j) {
        s[i + j] = biased_weight(s[i + j], this->scale, numbers.values[j], this->lse[j / 2 % 2]);
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 2) {
      const float delta = this->delta[i / 2 % 2];
      this->ds[i / 8][i / 2 % 4] = E::pack(s[i] * (dp[i] - delta), s[i + 1] * (dp[i + 1] - delta));
    }
    if constexpr (kWidth % 16 == 8) this->ds[kWidth / 16][2] = this->ds[kWidth / 16][3] = 0;
    multiply_over_step<T, kWidth>(this->sums, this->ds, this->shared.first(slot));
    this->before = slot;
    this->at.advance();
  }

 private:
  // delta = rowsum(dO o O), a quad's parts of two rows.
  __device__ __forceinline__ void sum_deltas(u32 rows, int group_row) {
    float(&delta)[2] = this->delta;
    delta[0] = delta[1] = 0.f;
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      u32 gradient[4], out[4];
      RowOperand<T>::load_fragment(gradient, rows + T::RowTile::kBytes, group_row, step);
      RowOperand<T>::load_fragment(out, rows + 2 * T::RowTile::kBytes, group_row, step);
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

// The log-sum-exps of this thread's two rows, from `row` on, of scores number `index`.
template <class T>
__device__ __forceinline__ void load_lse(float (&log_sums)[2], const AttentionBackwardParams& p,
                                         int index, int row) {
  const float* const of_head = p.call.lse + i64(SharedScores(p, index).head_index(p)) * T::kQueries;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    log_sums[half] =
        row + 8 * half < T::kQueries ? __ldg(of_head + row + 8 * half) : minus_infinity();
  }
}

// All steps of a head, by a warpgroup.
template <class T>
__device__ __forceinline__ void dq_bias_steps(BiasQueryRows<T>& rows) {
  if constexpr (T::kWholeSteps > 0) {
    // How many there are is kept from the compiler: two steps in a row would be mixed.
#pragma unroll 1
    for (int step = 0; step < recomputed(T::kWholeSteps); ++step) {
      rows.template step<T::kStep>(step);
    }
  }
  if constexpr (T::kTail > 0) rows.template step<T::kTailWidth>(T::kWholeSteps);
}

template <class T>
__device__ __forceinline__ void dq_bias_consume(const AttentionBackwardSm90BiasParams& params,
                                                const BackwardShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const int group = threadIdx.x / kGroupThreads;
  const UnitScores<T::kBlocks> scores(p);
  const BiasTiles<T> tiles{shared.base};
  const int row0 = scores.block * T::kBlockRows + group * kGroupRows;
  const int row = row0 + threadIdx.x / kWarpSize % 4 * 16 + threadIdx.x % kWarpSize / 4;
  KeptBias<T> kept;
  PipelineState<T::kStages> at;
  PipelineState<T::kRowSlots> rows_at;
  float log_sums[2];
  if (scores.first < scores.end) load_lse<T>(log_sums, p, scores.first, row);
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_at.advance()) {
    const SharedScores item(p, index);
    const u32 rows_empty = tiles.rows_empty(rows_at.index);
    mbarrier_wait(tiles.rows_full(rows_at.index), rows_at.phase);
    if constexpr (T::kKeepsBias) kept.acquire(tiles, item.entry);
    if (row0 >= T::kQueries) {
      release_tile<1>(rows_empty);
#pragma unroll 1
      for (int step = 0; step < T::kSteps; ++step) pass_step<T>(shared, at);
      continue;
    }
    BiasQueryRows<T> rows(shared, at, p.call.scale, row0, tiles, group);
    const i64 head = item.head_index(p);
    rows.begin(tiles.rows(rows_at.index), log_sums);
    // On their way while this head is worked on.
    if (index + 1 < scores.end) load_lse<T>(log_sums, p, index + 1, row);
    rows.write_stats(p.delta + head * 2 * T::kStatsRows);
    if constexpr (T::kInRegisters) release_tile<1>(rows_empty);
    dq_bias_steps<T>(rows);
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(rows_empty);

    store_dq(p, rows, item, row0, shared.staging(group));
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_dq_bias_sm90(
    const AttentionBackwardSm90BiasParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = BiasQueryPass<Config>;
  using Shared = BiasPassShared<T>;
  run_pass<T, Shared>(
      maps.q, maps.k, [&](const Shared& shared) { dq_bias_produce<T>(p, maps, shared); },
      [&](const Shared& shared) { dq_bias_consume<T>(p, shared); });
}

}  // namespace vitune
