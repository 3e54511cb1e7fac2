// templates/attention_backward/one_pass_sm90.cuh -- The family sm90_one_pass: all three gradients
// in one pass over the scores.
//
//   S' = c K Q'     P' = exp(S' - L)     dV = P' dO     dP' = V dO'     delta = rowsum(dO o O)
//   dS' = P' o (dP' - delta)             dK = c dS' Q   dQ' = c K' dS'
//
// A persistent CTA has a head at a time: a block of 128 keys, 64 of each of two warpgroups, whose
// dK and dV stay in registers while all queries pass by in steps. As in dkv_sm90.cuh scores are
// transposed, so that the accumulators of P' and dS', rounded, are the first operands of dV and dK.
// dQ needs the dS of both warpgroups: it crosses in shared memory to a third one, which makes
// nothing else (one_pass_dq.cuh), so that those with keys never wait for it, nor for its sums of
// the block before. A warp copies, three others sum deltas. Nothing is added by two threads to one
// number, so bits repeat.
#pragma once

#include "attention_backward/one_pass_deltas.cuh"
#include "attention_backward/one_pass_dq.cuh"
#include "attention_backward/one_pass_shared.cuh"
#include "attention_backward/rows_sm90.cuh"
#include "attention_backward/store_sm90.cuh"
#include "primitives/evict_store.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// Rows of a head into a tile. policy: of L2, where it has room for what comes again.
template <class T, class Tile, int kRows>
__device__ __forceinline__ void one_pass_load(u32 tile, const void* map, u32 full, int row,
                                              int head, int batch, u64 policy) {
  if constexpr (T::kStaysInL2) {
    tma_load_rows<Tile, kRows, kRows>(tile, map, full, row, head, batch, policy);
  } else {
    tma_load_rows<Tile, kRows, kRows>(tile, map, full, row, head, batch);
  }
}

// All copies, by one thread. Q and dO come again for each block of keys.
template <class T>
__device__ __forceinline__ void one_pass_produce(const AttentionBackwardParams& p,
                                                 const AttentionBackwardOnePassMaps& maps,
                                                 const OnePassShared<T>& shared, int heads) {
  using StepTile = typename T::StepTile;
  using RowTile = typename T::RowTile;
  const u64 once = evict_first(), again = evict_last();
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
      one_pass_load<T, RowTile, T::kBlockKeys>(shared.keys(keys.index), maps.k, keys_full, key0,
                                               head, batch, once);
      one_pass_load<T, RowTile, T::kBlockKeys>(shared.values(keys.index), maps.v, keys_full, key0,
                                               head, batch, once);
#pragma unroll 1
      for (int step = 0; step < T::kSteps; ++step, at.advance()) {
        const u32 full = shared.full(at.index);
        const int row = step * T::kStep;
        wait_for_loaded(shared.empty(at.index), at.phase);
        mbarrier_expect(full, (block == 0 ? 3 : 2) * StepTile::kBytes);
        one_pass_load<T, StepTile, T::kStep>(shared.queries(at.index), maps.q, full, row, head,
                                             batch, again);
        one_pass_load<T, StepTile, T::kStep>(shared.dout(at.index), maps.dout, full, row, head,
                                             batch, again);
        if (block == 0) {
          one_pass_load<T, StepTile, T::kStep>(shared.out(at.index), maps.out, full, row, head,
                                               batch, once);
        }
      }
    }
  }
}

// What becomes of weights: all count. Others are made of the operator's parameters too.
struct CountsAll {
  explicit __device__ __forceinline__ CountsAll(const AttentionBackwardParams&) {}
  // A head's block of keys, of which a warp has the sixteen from key0 on.
  __device__ __forceinline__ void begin_block(int /*head_index*/, int /*key0*/) {}
  // A step of kWidth queries from query0 on, whose products are under way.
  template <int kWidth>
  __device__ __forceinline__ AllKept begin_step(int /*query0*/) const {
    return {};
  }
};

// The way of a warpgroup with keys through the heads. Counted: what becomes of weights.
template <class T, class Counted>
struct OnePassGroup {
  using E = Element<T::kElement>;
  const AttentionBackwardParams& p;
  const OnePassShared<T>& shared;
  Counted counted{p};
  PipelineState<T::kStages> at;
  PipelineState<T::kKeyStages> keys;
  PipelineState<2> exchange;  // of gradients of scores
  RowOperand<T> k, v;
  float dk[T::kHeadDim / 2], dv[T::kHeadDim / 2];
  bool is_last;                // block of keys
  int before;                  // the slot of the step before, -1 for none
  int handed;                  // the exchange's tile of the step before, -1 for none
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
    before = handed = -1;
#pragma unroll
    for (auto& fragment : ds) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0;
  }

  // Products of the step before are done.
  __device__ __forceinline__ void release_before() {
    hold_fragments(ds);
    if (before >= 0) release_tile<1>(shared.empty(before));
    before = -1;
  }

  // Gradients of the step before are in their tile, for dQ. While products are under way: the fence
  // takes as long as some of them.
  __device__ __forceinline__ void finish_hand_over() {
    if (handed < 0) return;
    fence_proxy_async();
    release_tile<1>(shared.gradients_full(handed));
    handed = -1;
  }

  // Of each sixteen queries of a step, this thread's four log-sum-exps, or deltas.
  template <int kWidth>
  static __device__ __forceinline__ void load_stats(uint4 (&of_queries)[kWidth / 16], u32 stats) {
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) of_queries[i] = load_shared_16(stats + i * 128);
  }

  // P', rounded for its product, from S' in `s`, where it stays too, with those that do not count.
  template <int kWidth, class Kept>
  __device__ __forceinline__ void weigh(float (&s)[kWidth / 2], StepFragments<kWidth>& weights,
                                        const uint4 (&lse)[kWidth / 16], float scale,
                                        const Kept& kept) const {
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      weigh_queries(s, i, lse[i], scale, [](int) { return true; });
    }
    if (T::kLastKeys % T::kBlockKeys != 0 && is_last) {
      // A key that is not there has a score of 0, whose weight may be infinite.
      const int row = group() * kGroupRows + 16 * warp() + lane() / 4;
      const bool seen[2] = {row < T::kLastKeys, row + 8 < T::kLastKeys};
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) {
        if (!seen[i / 2 % 2]) s[i] = 0.f;
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth / 4; ++i) {
      const int pair = 2 * i;
      weights[i / 4][i % 4] =
          E::pack(kept.weight(s[pair], pair), kept.weight(s[pair + 1], pair + 1));
    }
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
    finish_hand_over();
    const auto kept = counted.template begin_step<kWidth>(query0);
    mbarrier_wait(shared.weighed(slot), at.phase);
    const u32 stats = shared.stats(query0) + threadIdx.x % 4 * 16;
    uint4 lse[kWidth / 16], deltas[kWidth / 16];
    load_stats<kWidth>(lse, stats);
    wgmma_wait<1>();  // the scores are there, and the products of the step before are done
    release_before();
    weigh<kWidth>(s, weights, lse, p.call.scale * kLog2E, kept);
    multiply_over_step<T, kWidth>(dv, weights, shared.dout(slot));
    load_stats<kWidth>(deltas, stats + 64);
    wgmma_wait<1>();  // the gradients of the weights are there
#pragma unroll
    for (int i = 0; i < kWidth / 16; ++i) {
      differentiate_queries<T>(ds[i], s, dp, i, deltas[i], kept);
    }
    mbarrier_wait(shared.gradients_empty(exchange.index), exchange.phase ^ 1);
    hand_over<kWidth>(shared.gradients(exchange.index));
    handed = exchange.index;
    exchange.advance();
    multiply_over_step<T, kWidth>(dk, ds, shared.queries(slot));
    wgmma_wait<1>();  // the weights' registers are free
    hold_fragments(weights);
    before = slot;
    at.advance();
  }

  // All queries, for a block of keys.
  __device__ __forceinline__ void block(int index, int batch, int head) {
    is_last = index == T::kBlocks - 1;
    counted.begin_block(batch * p.call.heads + head,
                        index * T::kBlockKeys + group() * kGroupRows + 16 * warp());
    mbarrier_wait(shared.keys_full(keys.index), keys.phase);
    begin();
    if constexpr (T::kWholeSteps > 0) {
      // How many there are is kept from the compiler: two steps in a row would be mixed.
#pragma unroll 1
      for (int at_step = 0; at_step < recomputed(T::kWholeSteps); ++at_step) {
        step<T::kStep>(at_step * T::kStep);
      }
    }
    if constexpr (T::kTail > 0) step<T::kTailWidth>(T::kWholeSteps * T::kStep);
    finish_hand_over();
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
    store_gradients<T, T::kStaysInL2>(static_cast<u16*>(p.dk) + batch * p.dk_view.batch +
                                          head * p.dk_view.head + row * p.dk_view.row,
                                      p.dk_view.row, T::kKeys - row, shared.staging(), dk,
                                      p.call.scale);
    store_gradients<T, T::kStaysInL2>(static_cast<u16*>(p.dv) + batch * p.dv_view.batch +
                                          head * p.dv_view.head + row * p.dv_view.row,
                                      p.dv_view.row, T::kKeys - row, shared.staging(), dv, 1.f);
  }
};

// The kernel, by what becomes of weights.
template <class Config, class Counted>
__device__ __forceinline__ void one_pass(const AttentionBackwardParams& p,
                                         const AttentionBackwardOnePassMaps& maps) {
  using T = OnePass<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const OnePassShared<T> shared{shared_address(shared_memory)};
  constexpr int kFirstOfDq = T::kGroups * kGroupThreads;
  constexpr int kFirstCopier = kFirstOfDq + kGroupThreads;
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
  } else if (threadIdx.x >= kFirstOfDq) {
    warpgroup_reg_dealloc<T::kDqRegisters>();
    one_pass_blocks<T, OnePassDq<T>>(p, shared, heads);
  } else {
    warpgroup_reg_alloc<T::kComputeRegisters>();
    one_pass_blocks<T, OnePassGroup<T, Counted>>(p, shared, heads);
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_one_pass_sm90(
    const AttentionBackwardParams& p, const AttentionBackwardOnePassMaps& maps) {
  one_pass<Config, CountsAll>(p, maps);
}

}  // namespace vitune
