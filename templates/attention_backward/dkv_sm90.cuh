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
    mbarrier_expect(shared.rows_full(), 2 * T::RowTile::kBytes);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
        shared.rows(0), maps.k, shared.rows_full(), item.row0, item.head, item.batch);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
        shared.rows(1), maps.v, shared.rows_full(), item.row0, item.head, item.batch);
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
        tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.first(at.index), maps.q,
                                                                full, row, head, item.batch);
        tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.second(at.index), maps.dout,
                                                                full, row, head, item.batch);
        copy_bytes(shared.stats(at.index), u64(stats + 2 * row), stats_bytes, full);
      }
    }
  }
}

// A warpgroup's 64 keys.
template <class T>
struct KeyRows {
  using E = Element<T::kElement>;
  const BackwardShared<T>& shared;
  PipelineState<T::kStages>& at;
  float scale;  // of the scores, for exponents of two
  int row0;     // of the warpgroup
  RowOperand<T> k, v;
  float dk[T::kHeadDim / 2], dv[T::kHeadDim / 2];
  int before;                  // the slot of the step before, -1 for none
  StepFragments<T::kStep> ds;  // which products of the step before may still read

  // This thread's first row.
  __device__ __forceinline__ int row() const {
    return row0 + threadIdx.x / kWarpSize % 4 * 16 + threadIdx.x % kWarpSize / 4;
  }

  // From the rows' tiles, whose copies are complete.
  __device__ __forceinline__ void begin() {
    k.load(shared.rows(0), row0 % T::kBlockRows);
    v.load(shared.rows(1), row0 % T::kBlockRows);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0.f;
    before = -1;
#pragma unroll
    for (auto& fragment : ds) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0;
  }

  // A step of kWidth queries. Those that are not there have an infinite log-sum-exp: no weight.
  // kDiagonal: some query does not see all of these keys.
  template <int kWidth, bool kDiagonal>
  __device__ __forceinline__ void step(int query0) {
    float s[kWidth / 2], dp[kWidth / 2];
    StepFragments<kWidth> weights;
    mbarrier_wait(shared.full(at.index), at.phase);
    multiply_over_head<T, kWidth>(s, k, shared.first(at.index));
    multiply_over_head<T, kWidth>(dp, v, shared.second(at.index));
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    hold_fragments(ds);
    if (before >= 0) release_tile<1>(shared.empty(before));
    const u32 stats = shared.stats(at.index) + threadIdx.x % 4 * 16;
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const u32 lse = j < 4 ? (j % 2 == 0 ? four.x : four.y) : (j % 2 == 0 ? four.z : four.w);
        float& weight = s[8 * i + j];
        weight = exp2_approx(__fmaf_rn(weight, scale, -__uint_as_float(lse)));
        if constexpr (kDiagonal) {
          const int query = query0 + 16 * i + j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2;
          if (row() + j / 2 % 2 * 8 > query) weight = 0.f;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[i][j] = E::pack(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    }
    multiply_over_step<T, kWidth>(dv, weights, shared.second(at.index));
    wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      const uint4 four = load_shared_16(stats + i * 128 + 64);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float low = __uint_as_float(j < 2 ? four.x : four.z);
        const float high = __uint_as_float(j < 2 ? four.y : four.w);
        const int at_pair = 8 * i + 2 * j;
        ds[i][j] =
            E::pack(s[at_pair] * (dp[at_pair] - low), s[at_pair + 1] * (dp[at_pair + 1] - high));
      }
    }
    multiply_over_step<T, kWidth>(dk, ds, shared.first(at.index));
    wgmma_wait<1>();  // the weights' registers are free
    hold_fragments(weights);
    before = at.index;
    at.advance();
  }

  // The last step's products are done, and its slot is released.
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
    hold_fragments(ds);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) {
      hold(dk[i]);
      hold(dv[i]);
    }
    if (before >= 0) release_tile<1>(shared.empty(before));
  }
};

// All steps over the queries of a head, by a warpgroup.
template <class T>
__device__ __forceinline__ void dkv_steps(KeyRows<T>& rows, const BackwardItem<T, true>& item) {
  if constexpr (T::kWholeSteps > 0) {
    // How many there are is kept from the compiler: two steps in a row would be mixed.
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
__device__ __forceinline__ void dkv_consume(const AttentionBackwardParams& p,
                                            const BackwardShared<T>& shared, int items) {
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
        mbarrier_wait(shared.full(at.index), at.phase);
        release_tile<1>(shared.empty(at.index));
        at.advance();
      }
      continue;
    }
    KeyRows<T> rows{shared, at, p.call.scale * kLog2E, row0};
    rows.begin();
    if constexpr (T::kInRegisters) release_tile<1>(shared.rows_empty());
#pragma unroll 1
    for (int i = 0; i < p.call.heads_per_kv; ++i) dkv_steps<T>(rows, item);
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

template <class Config>
__device__ __forceinline__ void attention_backward_dkv_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = KeyPass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const BackwardShared<T> shared{shared_address(shared_memory)};
  const int kv_heads = int(u32(p.call.heads) / u32(p.call.heads_per_kv));
  const int items = p.call.batch * kv_heads * T::kBlocks;
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.k);
    prefetch_map(maps.q);
  }
  if (threadIdx.x == 0) shared.init();
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) dkv_produce<T>(p, maps, shared, items);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    dkv_consume<T>(p, shared, items);
  }
}

}  // namespace vitune
