// templates/attention/forward_sm90_pipelined.cuh -- Fused attention forward on wgmma with producer
// warps.
//
// A persistent CTA: kWarps / 4 consumer warpgroups compute, the producer warps of another one bring
// tiles of keys, values and queries for this work tile and the next. The schedules are those of
// forward_sm90.cuh:
//   streaming  K and V pass by in kStages tiles of kBlockN keys, one for all warpgroups;
//   resident   a tile is all of a head; its blocks of rows go round the warpgroups.
// With kSwapAbRows one more warpgroup takes the few rows beyond a multiple of 64.
#pragma once

#include "attention/bias_sm90.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/epilogue.cuh"
#include "attention/group_attention.cuh"
#include "attention/overflow_fallback.cuh"
#include "attention/params.cuh"
#include "attention/producer_sm90.cuh"
#include "attention/shared_sm90.cuh"
#include "attention/swap_ab_tail.cuh"
#include "attention/tile_scheduler_sm90.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// A consumer warpgroup's side of the pipelines, for a block of rows. Streaming: each step has a
// tile of its own. Resident: all steps of a head share one.
template <class T>
struct ConsumedTiles {
  const PipelinedShared<T>& shared;
  KeyState<T>& at;  // and of values
  OrderedBarrier<T>& order;
  GroupBias<T>& bias;
  u32 queries_empty;  // barrier of the query tile
  int steps_left;     // that read the query tile

  __device__ __forceinline__ void wait_for_keys() {
    mbarrier_wait(shared.keys_full(at.index), at.phase);
    order.wait();
    if constexpr (!T::kTensorCopies) fence_proxy_async();
  }
  __device__ __forceinline__ void release_keys() {
    order.arrive();
    const bool last = --steps_left == 0;
    if (!T::kResident || last) warp_arrive(shared.keys_empty(at.index));
    if (last) warp_arrive(queries_empty);
  }
  __device__ __forceinline__ void wait_for_values() {
    mbarrier_wait(shared.values_full(at.index), at.phase);
    if constexpr (!T::kTensorCopies) fence_proxy_async();
  }
  __device__ __forceinline__ void release_values() {
    if (T::kResident) return;
    warp_arrive(shared.values_empty(at.index));
    at.advance();
  }

  // A step that this warpgroup has no part in.
  __device__ __forceinline__ void skip_step() {
    mbarrier_wait(shared.keys_full(at.index), at.phase);
    order.wait();
    release_keys();
    mbarrier_wait(shared.values_full(at.index), at.phase);
    release_values();
  }
};

// A step of the main loop.
template <class T>
struct Step {
  GroupAttention<T>& group;
  ConsumedTiles<T>& tiles;
  u32 queries;
  int last_row;

  // Step number `index` of the keys. kLast: the keys end in it. kFirst: nothing was attended to
  // before. kDiagonal: some row does not see all of its keys.
  template <bool kLast, bool kFirst, bool kDiagonal>
  __device__ __forceinline__ void run(int index) const {
    using Keys = typename T::Keys;
    constexpr int kWidth = kLast ? T::kTailWidth : T::kBlockN;
    constexpr bool kTail = kLast && Keys::kTailKeys != kWidth;
    constexpr int kLimit = kLast ? Keys::kTailKeys : T::kBlockN;
    const int key0 = index * T::kBlockN, row = T::kResident ? key0 : 0;
    const u32 keys = tiles.shared.keys(tiles.at.index),
              values = tiles.shared.values(tiles.at.index);
    typename GroupAttention<T>::Scores s;
    typename GroupAttention<T>::template Weights<kWidth> weights;

    group.template fetch_operands<kWidth, kTail>(key0, kLimit);
    tiles.wait_for_keys();
    group.template start_scores<kWidth>(s, queries, keys + row * T::kSwizzle);
    wgmma_wait<0>();
    tiles.release_keys();
    // ptxas moves half of the exponentials across a wait behind them. Where enough warps are at
    // work for that to matter the values can be waited for here.
    if constexpr (T::kValuesFirst) tiles.wait_for_values();
    if constexpr (T::kBiasTiles) {
      const bool last = !T::kBiasPerItem || (!T::kCausal && tiles.steps_left == 0);
      tiles.bias.template add<kWidth>(s, group.scale, key0, last);
    }
    group.template weigh<kWidth, kTail, kDiagonal, kFirst>(weights, s, key0, kLimit);
    if constexpr (!T::kValuesFirst) tiles.wait_for_values();
    group.template start_output<kWidth, kFirst>(weights, values + row * T::kSwizzle);
    wgmma_wait<0>();
    tiles.release_values();
  }
};

// The main loop: all steps of keys for a block of 64 rows, then the epilogue. Whether the rows have
// to be computed again, because an exponential overflowed.
template <class T>
__device__ __forceinline__ bool attend(const AttentionParams& p, const PipelinedShared<T>& shared,
                                       const HeadPlace& head, int row0, int steps,
                                       const QueryState<T>& query_at, ConsumedTiles<T>& tiles) {
  constexpr int kLast = T::Keys::kCount - 1;
  GroupAttention<T> group;
  group.begin(p, group_rows(row0, head));
  if constexpr (T::kBiasTiles && !T::kKeepsBias) tiles.bias.begin(p, group.place);
  mbarrier_wait(shared.queries_full(query_at.index), query_at.phase);
  tiles.queries_empty = shared.queries_empty(query_at.index);
  tiles.steps_left = steps;
  const Step<T> step{group, tiles, shared.queries(query_at.index), row0 + kGroupRows - 1};

  if constexpr (kLast == 0 || !T::kCausal) {
    step.template run<true, true, T::kCausal>(kLast);
    // How many there are is kept from the compiler: two steps in a row would be mixed, for want of
    // registers.
#pragma unroll 1
    for (int index = 0; index < recomputed(kLast); ++index) {
      step.template run<false, false, false>(index);
    }
  } else {
    // Steps whose keys no row sees are left out.
    step.template run<false, true, true>(0);
#pragma unroll 1
    for (int index = 1; index < min(steps, kLast); ++index) {
      const int key0 = index * T::kBlockN;
      if (key0 > step.last_row) {
        tiles.skip_step();
      } else if (key0 + T::kBlockN > step.last_row - kGroupRows + 2) {
        step.template run<false, false, true>(index);
      } else {
        step.template run<false, false, false>(index);
      }
    }
    if (steps > kLast) {
      if (kLast * T::kBlockN > step.last_row) {
        tiles.skip_step();
      } else {
        step.template run<true, false, true>(kLast);
      }
    }
  }

  if (T::kResident) warp_arrive(shared.values_empty(tiles.at.index));
  // The last steps of causal rows may have been left out.
  if constexpr (T::kBiasPerItem && T::kCausal) tiles.bias.release();
  const bool again = group.overflowed();
  const int warp = threadIdx.x / kWarpSize;
  Epilogue<T>::store(p, group.place,
                     shared.staging(warp / 4) + warp % 4 * T::kWarpRows * T::Rows::kPitch, group.o,
                     group.softmax);
  return again;
}

// Before the first item, with kBiasInRegisters: a warpgroup has the same rows of every head.
template <class T>
__device__ __forceinline__ void keep_bias(const AttentionParams& p, GroupBias<T>& bias,
                                          int warpgroup) {
  const HeadPlace head(p, blockIdx.x);
  bias.keep(p, group_rows(warpgroup * kGroupRows, head), [warpgroup] {
    if (warpgroup == 0) named_barrier<2, kGroupThreads>();
    if (warpgroup == 1) named_barrier<3, kGroupThreads>();
    if (warpgroup == 2) named_barrier<4, kGroupThreads>();
    if (warpgroup == 3) named_barrier<5, kGroupThreads>();
  });
}

template <class T>
__device__ __forceinline__ void consume_streaming(const AttentionParams& p,
                                                  const PipelinedShared<T>& shared) {
  const int warpgroup = threadIdx.x / kGroupThreads;
  KeyState<T> at;
  QueryState<T> query_at;
  query_at.index = warpgroup;
  OrderedBarrier<T> order(shared, warpgroup, T::kGroups);
  GroupBias<T> bias(shared, warpgroup);
  const int rows = p.queries - tail_rows<T>(p.queries);
  bool again = false;
  if constexpr (T::kKeepsBias) {
    if (warpgroup * kGroupRows < rows) keep_bias(p, bias, warpgroup);
  }
#pragma unroll 1
  for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
    const WorkTile<T> tile(p, index);
    const int row0 = tile.row0 + warpgroup * kGroupRows;
    ConsumedTiles<T> tiles{shared, at, order, bias, 0, 0};
    if (row0 < (T::kEvenItems ? tile.end : rows)) {
      const HeadPlace head(p, tile.head_index);
      again |= attend<T>(p, shared, head, row0, tile.steps, query_at, tiles);
    } else {
      mbarrier_wait(shared.queries_full(query_at.index), query_at.phase);
      tiles.queries_empty = shared.queries_empty(query_at.index);
      tiles.steps_left = tile.steps;
#pragma unroll 1
      for (int step = 0; step < tile.steps; ++step) tiles.skip_step();
    }
    query_at.phase ^= 1;
  }
  if constexpr (T::kHoldsReference) {
#pragma unroll 1
    for (int index = blockIdx.x; again && index < p.items; index = next_tile<T>(index)) {
      const WorkTile<T> tile(p, index);
      const int row0 = tile.row0 + warpgroup * kGroupRows;
      if (row0 >= (T::kEvenItems ? tile.end : rows)) continue;
      compute_again<T>(p, group_rows(row0, HeadPlace(p, tile.head_index)));
    }
  }
}

template <class T>
__device__ __forceinline__ void consume_resident(const AttentionParams& p,
                                                 const PipelinedShared<T>& shared) {
  constexpr int kSteps = T::Keys::kCount;
  const int warpgroup = threadIdx.x / kGroupThreads;
  const int blocks = row_blocks<T>(p.queries);
  const int heads = (p.items - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  const int groups = resident_groups<T>(blocks);
  if (warpgroup >= groups) return;
  const int rounds = ceil_div(heads * blocks, groups);
  OrderedBarrier<T> order(shared, warpgroup, groups);
  GroupBias<T> bias(shared, warpgroup);
  if constexpr (T::kKeepsBias) keep_bias(p, bias, warpgroup);
  bool again = false;
  int number = 0, own = warpgroup;  // the head's number among this CTA's, the block's in its head
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, own += groups) {
    for (; own >= blocks; own -= blocks) ++number;
    const int block = round * groups + warpgroup;
    if (number >= heads) {
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        order.wait();
        order.arrive();
      }
      continue;
    }
    KeyState<T> at;
    at.index = number % T::kRing;
    at.phase = number / T::kRing & 1;
    QueryState<T> query_at;
    query_at.index = block % T::kQuerySlots;
    query_at.phase = block / T::kQuerySlots & 1;
    ConsumedTiles<T> tiles{shared, at, order, bias, 0, 0};
    const HeadPlace head(p, blockIdx.x + number * gridDim.x);
    const int row0 = own * kGroupRows;
    again |= attend<T>(p, shared, head, row0, kSteps, query_at, tiles);
  }
  if constexpr (T::kHoldsReference) {
#pragma unroll 1
    for (int block = warpgroup; again && block < heads * blocks; block += groups) {
      const int number = u32(block) / u32(blocks);
      const HeadPlace head(p, blockIdx.x + number * gridDim.x);
      compute_again<T>(p, group_rows((block - number * blocks) * kGroupRows, head));
    }
  }
}

// Zeros what products read and copies never write.
template <class T>
__device__ __forceinline__ void clear_tiles(const PipelinedShared<T>& shared) {
  for (int slot = 0; slot < T::kRing; ++slot) {
    clear_last_chunk<typename T::KeyTile, T::kKeyRows, T::kThreads>(shared.keys(slot), threadIdx.x);
  }
  for (int slot = 0; slot < T::kQuerySlots; ++slot) {
    clear_last_chunk<typename T::QueryTile, kGroupRows, T::kThreads>(shared.queries(slot),
                                                                     threadIdx.x);
  }
  fence_proxy_async();
}

// kProducer = 2 comes with tensor maps, kProducer = 1 without.
template <class Config, class... Maps>
__device__ __forceinline__ void forward(const AttentionParams& p, const Maps&... tensor_maps) {
  using T = PipelinedTraits<Config>;
  static_assert(sizeof...(Maps) == T::kTensorCopies, "kProducer = 2 needs tensor maps");
  const AttentionTensorMaps* maps = nullptr;
  if constexpr (T::kTensorCopies) maps = (&tensor_maps, ...);
  extern __shared__ __align__(1024) char shared_memory[];
  const PipelinedShared<T> shared{shared_address(shared_memory)};
  if constexpr (T::kTensorCopies) {
    if (threadIdx.x == T::kGroups * kGroupThreads) {
      prefetch_map(maps->k);
      prefetch_map(maps->q);
      prefetch_map(maps->v);
      if constexpr (T::kBiasBoxes) prefetch_map(maps->bias);
    }
  }
  if (threadIdx.x == 0) {
    const int readers = 4 * (T::kResident ? row_blocks<T>(p.queries) : T::kGroups);
    shared.init(readers + (tail_rows<T>(p.queries) > 0 ? 4 : 0));
  }
  if constexpr (!T::kTensorCopies) clear_tiles<T>(shared);
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= (T::kGroups + 1) * kGroupThreads) {
    if constexpr (T::kSwapAbRows > 0) {
      if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kSwapAbRegisters>();
      consume_tail<T>(p, shared);
    }
  } else if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    produce<T>(p, maps, shared);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    if constexpr (T::kResident) {
      consume_resident<T>(p, shared);
    } else {
      consume_streaming<T>(p, shared);
    }
  }
}

}  // namespace vitune
