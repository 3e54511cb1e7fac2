// templates/attention_backward/dkv_bias_sm90.cuh -- The pass of the family sm90_bias with rows of
// keys: dK and dV.
//
//   S' = c K Q' + bias'     P' = exp(S' - L)     dV = P' dO     dP' = V dO'
//   dS' = P' o (dP' - delta)                     dK = c dS' Q
//
// As dkv_sm90.cuh, with the transposed bias in the order of registers.
#pragma once

#include "attention_backward/bias_fragments_sm90.cuh"
#include "attention_backward/dkv_sm90.cuh"

namespace vitune {

// All copies of the pass, by one thread.
template <class T>
__device__ __forceinline__ void dkv_bias_produce(const AttentionBackwardSm90BiasParams& params,
                                                 const AttentionBackwardTensorMaps& maps,
                                                 const BackwardShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const UnitScores<T::kBlocks> scores(p);
  const BiasTiles<T> tiles{shared.base};
  BiasCopies<T> bias{reinterpret_cast<u64>(params.key_bias), scores.block};
  const int row0 = scores.block * T::kBlockRows;
  PipelineState<T::kStages> at;
  PipelineState<T::kRowSlots> rows_at;
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_at.advance()) {
    const SharedScores item(p, index);
    const u32 rows = tiles.rows(rows_at.index), rows_full = tiles.rows_full(rows_at.index);
    wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);
    mbarrier_expect(rows_full, 2 * T::RowTile::kBytes);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(rows, maps.k, rows_full, row0,
                                                                  item.head, item.batch);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
        rows + T::RowTile::kBytes, maps.v, rows_full, row0, item.head, item.batch);
    if constexpr (T::kKeepsBias) bias.keep(tiles, item.entry, 0, T::kColumnFragments);
    const float* const stats = p.delta + i64(item.head_index(p)) * 2 * T::kStatsRows;
#pragma unroll 1
    for (int step = 0; step < T::kSteps; ++step, at.advance()) {
      const u32 full = shared.full(at.index);
      const int row = step * T::kStep, first = step * T::kBiasFragments;
      const int count = T::kKeepsBias ? 0 : min(T::kBiasFragments, T::kColumnFragments - first);
      const u32 stats_bytes = 8 * min(T::kStep, T::kStatsRows - row);
      wait_for_loaded(shared.empty(at.index), at.phase);
      mbarrier_expect(full, T::kStageBytes + stats_bytes + bias.bytes(count));
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.first(at.index), maps.q, full,
                                                              row, item.head, item.batch);
      tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.second(at.index), maps.dout,
                                                              full, row, item.head, item.batch);
      copy_bytes(shared.stats(at.index), u64(stats + 2 * row), stats_bytes, full);
      if constexpr (!T::kKeepsBias) bias.copy(tiles, at.index, full, item.entry, first, count);
    }
  }
}

// A warpgroup's 64 keys. `scale` is that of the scores.
template <class T>
struct BiasKeyRows : KeyRows<T> {
  using E = Element<T::kElement>;
  BiasTiles<T> tiles;
  int group;

  __device__ __forceinline__ BiasKeyRows(const BackwardShared<T>& shared,
                                         PipelineState<T::kStages>& at, float scale, int row0,
                                         const BiasTiles<T>& bias_tiles, int warpgroup)
      : KeyRows<T>(shared, at, scale, row0), tiles(bias_tiles), group(warpgroup) {}

  // From the rows' tiles at `rows`, whose copies are complete.
  __device__ __forceinline__ void begin(u32 rows) {
    this->k.load(rows, this->row0 % T::kBlockRows);
    this->v.load(rows + T::RowTile::kBytes, this->row0 % T::kBlockRows);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) this->dk[i] = this->dv[i] = 0.f;
  }

  // Step number `number`, of kWidth queries. Those that are not there have an infinite log-sum-exp:
  // no weight.
  template <int kWidth>
  __device__ __forceinline__ void step(int number) {
    float s[kWidth / 2], dp[kWidth / 2];
    StepFragments<kWidth> weights;
    const int slot = this->at.index;
    mbarrier_wait(this->shared.full(slot), this->at.phase);
    multiply_over_head<T, kWidth>(s, this->k, this->shared.first(slot));
    multiply_over_head<T, kWidth>(dp, this->v, this->shared.second(slot));
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(this->ds);
    if (this->before >= 0) release_tile<1>(this->shared.empty(this->before));
    const u32 stats = this->shared.stats(slot) + threadIdx.x % 4 * 16;
    const u32 bias = tiles.group(T::kKeepsBias ? 0 : slot, group) +
                     (T::kKeepsBias ? number * (T::kStep / 16) * T::kFragmentBytes : 0) +
                     threadIdx.x % kGroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128);
      const BiasFragment<T::kBias> numbers(bias + i * T::kFragmentBytes);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const u32 lse = j < 4 ? (j % 2 == 0 ? four.x : four.y) : (j % 2 == 0 ? four.z : four.w);
        float& weight = s[8 * i + j];
        weight = biased_weight(weight, this->scale, numbers.values[j], __uint_as_float(lse));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[i][j] = E::pack(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    }
    multiply_over_step<T, kWidth>(this->dv, weights, this->shared.second(slot));
    wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128 + 64);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float low = __uint_as_float(j < 2 ? four.x : four.z);
        const float high = __uint_as_float(j < 2 ? four.y : four.w);
        const int pair = 8 * i + 2 * j;
        this->ds[i][j] = E::pack(s[pair] * (dp[pair] - low), s[pair + 1] * (dp[pair + 1] - high));
      }
    }
    multiply_over_step<T, kWidth>(this->dk, this->ds, this->shared.first(slot));
    wgmma_wait<1>();  // the weights' registers are free
    hold_fragments(weights);
    this->before = slot;
    this->at.advance();
  }
};

// All steps over the queries of a head, by a warpgroup.
template <class T>
__device__ __forceinline__ void dkv_bias_steps(BiasKeyRows<T>& rows) {
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
__device__ __forceinline__ void dkv_bias_consume(const AttentionBackwardSm90BiasParams& params,
                                                 const BackwardShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const int group = threadIdx.x / kGroupThreads;
  const UnitScores<T::kBlocks> scores(p);
  const BiasTiles<T> tiles{shared.base};
  const int row0 = scores.block * T::kBlockRows + group * kGroupRows;
  KeptBias<T> kept;
  PipelineState<T::kStages> at;
  PipelineState<T::kRowSlots> rows_at;
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_at.advance()) {
    const SharedScores item(p, index);
    const u32 rows_empty = tiles.rows_empty(rows_at.index);
    mbarrier_wait(tiles.rows_full(rows_at.index), rows_at.phase);
    if constexpr (T::kKeepsBias) kept.acquire(tiles, item.entry);
    if (row0 >= T::kKeys) {
      release_tile<1>(rows_empty);
#pragma unroll 1
      for (int step = 0; step < T::kSteps; ++step) pass_step<T>(shared, at);
      continue;
    }
    BiasKeyRows<T> rows(shared, at, p.call.scale, row0, tiles, group);
    rows.begin(tiles.rows(rows_at.index));
    if constexpr (T::kInRegisters) release_tile<1>(rows_empty);
    dkv_bias_steps<T>(rows);
    rows.finish();
    if constexpr (!T::kInRegisters) release_tile<1>(rows_empty);

    store_dkv(p, rows, item, row0, shared.staging(group));
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_dkv_bias_sm90(
    const AttentionBackwardSm90BiasParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = BiasKeyPass<Config>;
  using Shared = BiasPassShared<T>;
  run_pass<T, Shared>(
      maps.k, maps.q, [&](const Shared& shared) { dkv_bias_produce<T>(p, maps, shared); },
      [&](const Shared& shared) { dkv_bias_consume<T>(p, shared); });
}

}  // namespace vitune
