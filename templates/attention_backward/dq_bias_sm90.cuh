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
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_phase ^= 1) {
    const SharedScores item(p, index);
    wait_for_loaded(shared.rows_empty(), rows_phase);
    mbarrier_expect(shared.rows_full(), 3 * T::RowTile::kBytes);
    const void* const row_maps[3] = {maps.q, maps.dout, maps.out};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
          shared.rows(i), row_maps[i], shared.rows_full(), row0, item.head, item.batch);
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
  using typename QueryRows<T>::E;
  BiasTiles<T> tiles;
  int group;

  // From the rows' tiles, whose copies are complete.
  __device__ __forceinline__ void begin(const float* lse_of_head) {
    QueryRows<T>::begin(lse_of_head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row without keys, and one behind the last, has no weights: exp(x - inf) = 0.
      const int at_row = this->row() + 8 * half;
      const float value = at_row < T::kQueries ? lse_of_head[at_row] : minus_infinity();
      this->lse[half] = value == minus_infinity() ? -value : value;
    }
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
};

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
  KeptBias<T> kept;
  PipelineState<T::kStages> at;
  u32 rows_phase = 0;
#pragma unroll 1
  for (int index = scores.first; index < scores.end; ++index, rows_phase ^= 1) {
    const SharedScores item(p, index);
    mbarrier_wait(shared.rows_full(), rows_phase);
    if constexpr (T::kKeepsBias) kept.turn_to(tiles, item.entry);
    if (row0 >= T::kQueries) {
      release_tile<1>(shared.rows_empty());
#pragma unroll 1
      for (int step = 0; step < T::kSteps; ++step, at.advance()) {
        mbarrier_wait(shared.full(at.index), at.phase);
        release_tile<1>(shared.empty(at.index));
      }
      continue;
    }
    BiasQueryRows<T> rows{{shared, at, p.call.scale, row0}, tiles, group};
    const i64 head = item.head_index(p);
    rows.begin(p.call.lse + head * T::kQueries);
    rows.write_stats(p.delta + head * 2 * T::kStatsRows);
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
    dq_bias_steps<T>(rows);
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
__device__ __forceinline__ void attention_backward_dq_bias_sm90(
    const AttentionBackwardSm90BiasParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = BiasQueryPass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const BackwardShared<T> shared{shared_address(shared_memory)};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.q);
    prefetch_map(maps.k);
  }
  if (threadIdx.x == 0) {
    BiasTiles<T>{shared.base}.init();
    shared.init();
  }
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) dq_bias_produce<T>(p, maps, shared);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    dq_bias_consume<T>(p, shared);
  }
}

}  // namespace vitune
