// templates/attention_backward/one_pass_sm90.cuh -- The family sm90_one_pass: all three gradients
// in one pass over the scores.
//
//   S' = c K Q'     P' = exp(S' - L)     dV = P' dO     dP' = V dO'     delta = rowsum(dO o O)
//   dS' = P' o (dP' - delta)             dK = c dS' Q   dQ' = c K' dS'
//
// A persistent CTA has a head at a time: a block of 128 keys, 64 of each of two warpgroups, whose
// dK and dV stay in registers while all queries pass by in steps. As in dkv_sm90.cuh scores are
// transposed, so that the accumulators of P' and dS', rounded, are the first operands of dV and dK.
// dQ needs the dS of both warpgroups: it crosses in shared memory, and the warpgroups take turns at
// steps (one_pass_dq.cuh). A warp copies, three others sum deltas. Nothing is added by two threads
// to one number, so bits repeat.
#pragma once

#include "attention_backward/one_pass_deltas.cuh"
#include "attention_backward/one_pass_dq.cuh"
#include "attention_backward/one_pass_shared.cuh"
#include "attention_backward/rows_sm90.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// All copies, by one thread.
template <class T>
__device__ __forceinline__ void one_pass_produce(const AttentionBackwardParams& p,
                                                 const AttentionBackwardOnePassMaps& maps,
                                                 const OnePassShared<T>& shared, int heads) {
  using StepTile = typename T::StepTile;
  using RowTile = typename T::RowTile;
  PipelineState<T::kStages> at;
  PipelineState<T::kKeyStages> keys;
#pragma unroll 1
  for (int index = blockIdx.x; index < heads; index += gridDim.x) {
    const int batch = int(u32(index) / u32(p.call.heads)), head = index - batch * p.call.heads;
#pragma unroll 1
    for (int block = 0; block < T::kBlocks; ++block, keys.advance()) {
      const u32 keys_full = shared.keys_full(keys.index);
      const int key0 = block * T::kBlockKeys;
      mbarrier_wait(shared.keys_empty(keys.index), keys.phase ^ 1);
      mbarrier_expect(keys_full, 2 * RowTile::kBytes);
      tma_load_rows<RowTile, T::kBlockKeys, T::kBlockKeys>(shared.keys(keys.index), maps.k,
                                                           keys_full, key0, head, batch);
      tma_load_rows<RowTile, T::kBlockKeys, T::kBlockKeys>(shared.values(keys.index), maps.v,
                                                           keys_full, key0, head, batch);
#pragma unroll 1
      for (int step = 0; step < T::kSteps; ++step, at.advance()) {
        const u32 full = shared.full(at.index);
        const int row = step * T::kStep;
        wait_for_loaded(shared.empty(at.index), at.phase);
        mbarrier_expect(full, (block == 0 ? 3 : 2) * StepTile::kBytes);
        tma_load_rows<StepTile, T::kStep, T::kStep>(shared.queries(at.index), maps.q, full, row,
                                                    head, batch);
        tma_load_rows<StepTile, T::kStep, T::kStep>(shared.dout(at.index), maps.dout, full, row,
                                                    head, batch);
        if (block == 0) {
          tma_load_rows<StepTile, T::kStep, T::kStep>(shared.out(at.index), maps.out, full, row,
                                                      head, batch);
        }
      }
    }
  }
}

// A warpgroup's way through the heads.
template <class T>
struct OnePassGroup {
  using E = Element<T::kElement>;
  const AttentionBackwardParams& p;
  const OnePassShared<T>& shared;
  PipelineState<T::kStages> at;
  PipelineState<T::kKeyStages> keys;
  PipelineState<2> exchange;  // of gradients of scores
  RowOperand<T> k, v;
  float dk[T::kHeadDim / 2], dv[T::kHeadDim / 2];
  bool is_first, is_last;      // block of keys
  int before;                  // the slot of the step before, -1 for none
  StepFragments<T::kStep> ds;  // which products of the step before may still read

  static __device__ __forceinline__ int group() { return threadIdx.x / kGroupThreads; }
  static __device__ __forceinline__ int warp() { return threadIdx.x / kWarpSize % 4; }
  static __device__ __forceinline__ int lane() { return threadIdx.x % kWarpSize; }

  // From a block's tiles, whose copies are complete.
  __device__ __forceinline__ void begin() {
    k.load(shared.keys(keys.index), group() * kGroupRows);
    v.load(shared.values(keys.index), group() * kGroupRows);
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) dk[i] = dv[i] = 0.f;
    before = -1;
#pragma unroll
    for (auto& fragment : ds) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0;
  }

  // Products of the step before are done.
  __device__ __forceinline__ void release_before() {
    hold_fragments(ds);
    if (before >= 0) release_tile<1>(shared.empty(before));
    before = -1;
  }

  // P', rounded for its product, from S' in `s`, where it stays too.
  template <int kWidth>
  __device__ __forceinline__ void weigh(float (&s)[kWidth / 2], StepFragments<kWidth>& weights,
                                        u32 stats, float scale) const {
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      weigh_queries(s, i, load_shared_16(stats + i * 128), scale, [](int) { return true; });
    }
    if (T::kLastKeys % kGroupRows != 0 && is_last) {
      // A key that is not there has a score of 0, whose weight may be infinite.
      const int row = group() * kGroupRows + 16 * warp() + lane() / 4;
      const bool seen[2] = {row < T::kLastKeys, row + 8 < T::kLastKeys};
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) {
        if (!seen[i / 2 % 2]) s[i] = 0.f;
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth / 4; ++i) weights[i / 4][i % 4] = E::pack(s[2 * i], s[2 * i + 1]);
  }

  // This warp's columns of the tile that both warpgroups fill, whose rows are queries.
  template <int kWidth>
  __device__ __forceinline__ void hand_over(u32 tile) const {
    const int lane = recomputed(threadIdx.x % kWarpSize), row = lane / 16 * 8 + lane % 8;
    const u32 to = tile + T::GradientTile::offset(row, group() * 8 + 2 * warp() + lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      stmatrix_x4_trans(to + 16 * i * T::GradientTile::kRowBytes, ds[i]);  // swizzled alike
    }
  }

  // A step of kWidth queries. Those that are not there have an infinite log-sum-exp: no weight.
  template <int kWidth>
  __device__ __forceinline__ void step(int query0) {
    float s[kWidth / 2], dp[kWidth / 2];
    StepFragments<kWidth> weights;
    const int slot = at.index;
    mbarrier_wait(shared.full(slot), at.phase);
    multiply_over_head<T, kWidth>(s, k, shared.queries(slot));
    multiply_over_head<T, kWidth>(dp, v, shared.dout(slot));
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    release_before();
    mbarrier_wait(shared.weighed(slot), at.phase);
    const u32 stats = shared.stats(query0) + threadIdx.x % 4 * 16;
    weigh<kWidth>(s, weights, stats, p.call.scale * kLog2E);
    multiply_over_step<T, kWidth>(dv, weights, shared.dout(slot));
    wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      differentiate_queries<T>(ds[i], s, dp, i, load_shared_16(stats + i * 128 + 64), AllKept());
    }
    mbarrier_wait(shared.gradients_empty(exchange.index), exchange.phase ^ 1);
    hand_over<kWidth>(shared.gradients(exchange.index));
    multiply_over_step<T, kWidth>(dk, ds, shared.queries(slot));
    fence_proxy_async();
    release_tile<1>(shared.gradients_full(exchange.index));
    wgmma_wait<1>();  // the weights' registers are free
    hold_fragments(weights);
    before = slot;
    at.advance();
  }

  // A step of a warpgroup that has no keys in the block, whose part of the tile is not read.
  __device__ __forceinline__ void pass() {
    mbarrier_wait(shared.full(at.index), at.phase);
    mbarrier_wait(shared.weighed(at.index), at.phase);
    mbarrier_wait(shared.gradients_empty(exchange.index), exchange.phase ^ 1);
    release_tile<1>(shared.gradients_full(exchange.index));
    release_tile<1>(shared.empty(at.index));
    at.advance();
  }

  // dQ of the step that begins with query0, of the keys of this block and those before.
  template <int kWidth>
  __device__ __forceinline__ void add_dq(int query0, int batch, int head) {
    OnePassQueryGradients<T, kWidth> dq[T::kHeadBlocks];
    float* const kept = p.delta + i64(blockIdx.x) * T::kScratchSums +
                        query0 / T::kStep * T::kStepSums +
                        recomputed(threadIdx.x % kGroupThreads) * 4;
#pragma unroll
    for (int block = 0; block < T::kHeadBlocks; ++block) {
      dq[block].begin(kept + block * T::kBlockSums, T::kBlocks == 1 || is_first);
    }
    mbarrier_wait(shared.gradients_full(exchange.index), exchange.phase);
#pragma unroll
    for (int block = 0; block < T::kHeadBlocks; ++block) {
      dq[block].multiply(shared.keys(keys.index), shared.gradients(exchange.index), block, is_last);
    }
    release_before();
    release_tile<1>(shared.gradients_empty(exchange.index));
#pragma unroll
    for (int block = 0; block < T::kHeadBlocks; ++block) {
      if (!dq[block].is_there(block)) continue;
      if (T::kBlocks == 1 || is_last) {
        dq[block].store(static_cast<u16*>(p.dq) + batch * p.dq_view.batch + head * p.dq_view.head +
                            query0 * p.dq_view.row,
                        p.dq_view.row, T::kQueries - query0, shared.staging(), block, p.call.scale);
      } else {
        dq[block].keep(kept + block * T::kBlockSums);
      }
    }
  }

  template <int kWidth>
  __device__ __forceinline__ void step_and_dq(int index, int batch, int head) {
    if (T::kLastKeys <= kGroupRows && is_last && group() > 0) {
      pass();
    } else {
      step<kWidth>(index * T::kStep);
    }
    if (index % T::kGroups == group()) add_dq<kWidth>(index * T::kStep, batch, head);
    exchange.advance();
  }

  // All queries, for a block of keys.
  __device__ __forceinline__ void block(int index, int batch, int head) {
    is_first = index == 0;
    is_last = index == T::kBlocks - 1;
    mbarrier_wait(shared.keys_full(keys.index), keys.phase);
    begin();
    if constexpr (T::kWholeSteps > 0) {
      // How many there are is kept from the compiler: two steps in a row would be mixed.
#pragma unroll 1
      for (int step = 0; step < recomputed(T::kWholeSteps); ++step) {
        step_and_dq<T::kStep>(step, batch, head);
      }
    }
    if constexpr (T::kTail > 0) step_and_dq<T::kTailWidth>(T::kWholeSteps, batch, head);
    wgmma_wait<0>();
    release_before();
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) {
      hold(dk[i]);
      hold(dv[i]);
    }
    release_tile<1>(shared.keys_empty(keys.index));
    keys.advance();
    const int row = index * T::kBlockKeys + group() * kGroupRows + 16 * warp();
    store_gradients<T>(static_cast<u16*>(p.dk) + batch * p.dk_view.batch + head * p.dk_view.head +
                           row * p.dk_view.row,
                       p.dk_view.row, T::kKeys - row, shared.staging(), dk, p.call.scale);
    store_gradients<T>(static_cast<u16*>(p.dv) + batch * p.dv_view.batch + head * p.dv_view.head +
                           row * p.dv_view.row,
                       p.dv_view.row, T::kKeys - row, shared.staging(), dv, 1.f);
  }
};

template <class T>
__device__ __forceinline__ void one_pass_consume(const AttentionBackwardParams& p,
                                                 const OnePassShared<T>& shared, int heads) {
  OnePassGroup<T> group{p, shared};
#pragma unroll 1
  for (int index = blockIdx.x; index < heads; index += gridDim.x) {
    const int batch = int(u32(index) / u32(p.call.heads)), head = index - batch * p.call.heads;
#pragma unroll 1
    for (int block = 0; block < recomputed(T::kBlocks); ++block) group.block(block, batch, head);
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_one_pass_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardOnePassMaps& maps) {
  using T = OnePass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const OnePassShared<T> shared{shared_address(shared_memory)};
  constexpr int kFirstCopier = T::kGroups * kGroupThreads;
  const int heads = p.call.batch * p.call.heads;
  if (threadIdx.x == kFirstCopier) {
    prefetch_map(maps.k);
    prefetch_map(maps.q);
  }
  if (threadIdx.x == 0) shared.init();
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= kFirstCopier) {
    warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == kFirstCopier) one_pass_produce<T>(p, maps, shared, heads);
    if (threadIdx.x >= kFirstCopier + kWarpSize) one_pass_deltas<T>(p, shared, heads);
  } else {
    warpgroup_reg_alloc<T::kComputeRegisters>();
    one_pass_consume<T>(p, shared, heads);
  }
}

}  // namespace vitune
