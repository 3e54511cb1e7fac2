// templates/attention/forward_sm90_pipelined.cuh -- Fused attention forward on wgmma with warps
// that do nothing but copy.
//
// A persistent CTA: kWarps / 4 warpgroups compute, another one keeps tiles of keys, values and
// queries coming for this work item and the next. The two schedules are those of forward_sm90.cuh:
//   streaming  K and V pass by in kStages tiles of kBlockN keys, one for all warpgroups;
//   resident   a tile is all of a head; its blocks of rows go to the warpgroups in turn.
// With kSpareRows one more warpgroup takes the few rows beyond a multiple of 64.
#pragma once

#include "attention/bias_copies.cuh"
#include "attention/bias_tiles.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/copying.cuh"
#include "attention/epilogue.cuh"
#include "attention/exact_rows.cuh"
#include "attention/group_attention.cuh"
#include "attention/lone_copier.cuh"
#include "attention/params.cuh"
#include "attention/pipeline.cuh"
#include "attention/spare_rows.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// ----------------------------------------------------------------------------------- computing

// This thread's warp among the rows of its warpgroup.
__device__ __forceinline__ RowPlace group_rows(int row0, const HeadPlace& head) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize % 4;
  return {row0 + 16 * warp, lane / 4, lane % 4, head.batch, head.head};
}

// A step's tiles, for GroupAttention::attend(): waits for copies and turns, gives tiles back.
// Streaming: each step has a tile of its own. Resident: all steps of a head share one.
template <class T>
struct StepTiles {
  static constexpr bool kValuesFirst = T::kValuesFirst;
  const Pipeline<T>& pipe;
  RingPlace<T::kRing>& at;
  Turns<T>& turns;
  GroupBias<T>& bias;
  u32 queries_free;  // barrier of the query tile
  int steps_left;    // that read the query tile

  __device__ __forceinline__ void keys_wanted() {
    mbarrier_wait(pipe.keys_full(at.slot), at.parity);
    turns.take();
    if constexpr (!T::kTensorCopies) fence_proxy_async();
  }
  __device__ __forceinline__ void keys_read() {
    turns.pass();
    const bool last = --steps_left == 0;
    if (!T::kResident || last) warp_arrive(pipe.keys_free(at.slot));
    if (last) warp_arrive(queries_free);
  }
  template <int kWidth, int kMaxTiles>
  __device__ __forceinline__ void add_bias(float (&s)[1][kMaxTiles][4], float scale, int key0) {
    const bool last = !T::kBiasPerItem || (!T::kCausal && steps_left == 0);
    bias.template add<kWidth>(s, scale, key0, last);
  }
  __device__ __forceinline__ void values_wanted() {
    mbarrier_wait(pipe.values_full(at.slot), at.parity);
    if constexpr (!T::kTensorCopies) fence_proxy_async();
  }
  __device__ __forceinline__ void values_read() {
    if (T::kResident) return;
    warp_arrive(pipe.values_free(at.slot));
    at.advance();
  }
  // A step that this warpgroup has no part in.
  __device__ __forceinline__ void skip() {
    mbarrier_wait(pipe.keys_full(at.slot), at.parity);
    turns.take();
    keys_read();
    mbarrier_wait(pipe.values_full(at.slot), at.parity);
    values_read();
  }
};

// All steps of a warpgroup's rows.
template <class T>
struct StepWalk {
  GroupAttention<T>& group;
  StepTiles<T>& tiles;
  u32 queries;
  int last_row;

  // kLast: the keys end in this step. kFirst: nothing was attended to before. kDiagonal: some row
  // does not see all of its keys.
  template <bool kLast, bool kFirst, bool kDiagonal>
  __device__ __forceinline__ void step(int index) {
    using Keys = typename T::Keys;
    constexpr int kWidth = kLast ? T::kTailWidth : T::kBlockN;
    constexpr bool kTail = kLast && Keys::kTailKeys != kWidth;
    const int key0 = index * T::kBlockN;
    const int row = T::kResident ? key0 : 0;
    const u32 keys = tiles.pipe.keys(tiles.at.slot), values = tiles.pipe.values(tiles.at.slot);
    constexpr int kLimit = kLast ? Keys::kTailKeys : T::kBlockN;
    group.template attend<kWidth, kTail, kDiagonal, kFirst>(queries, keys, values, row, key0,
                                                            kLimit, tiles);
  }
  // Steps after the first one of causal rows; those whose keys no row sees are left out.
  __device__ __forceinline__ void causal_rest(int steps) {
    constexpr int kLast = T::Keys::kCount - 1;
#pragma unroll 1
    for (int index = 1; index < min(steps, kLast); ++index) {
      const int key0 = index * T::kBlockN;
      if (key0 > last_row) {
        tiles.skip();
      } else if (key0 + T::kBlockN > last_row - kGroupRows + 2) {
        step<false, false, true>(index);
      } else {
        step<false, false, false>(index);
      }
    }
    if (steps <= kLast) return;
    if (kLast * T::kBlockN > last_row) {
      tiles.skip();
    } else {
      step<true, false, true>(kLast);
    }
  }
  __device__ __forceinline__ void all(int steps) {
    constexpr int kLast = T::Keys::kCount - 1;
    if constexpr (kLast == 0 || !T::kCausal) {
      step<true, true, T::kCausal>(kLast);
      // How many there are is kept from the compiler: two steps in a row would be mixed, for want
      // of registers.
#pragma unroll 1
      for (int index = 0; index < recomputed(kLast); ++index) step<false, false, false>(index);
    } else {
      step<false, true, true>(0);
      causal_rest(steps);
    }
  }
};

// True if the rows have to be computed again.
template <class T>
__device__ __forceinline__ bool attend_rows(const AttentionParams& p, const Pipeline<T>& pipe,
                                            const HeadPlace& head, int row0, int steps,
                                            const RingPlace<T::kQuerySlots>& query_at,
                                            StepTiles<T>& tiles) {
  GroupAttention<T> group;
  group.begin(p, group_rows(row0, head));
  if constexpr (T::kBiasTiles && !T::kKeepsBias) tiles.bias.begin(p, group.place);
  mbarrier_wait(pipe.queries_full(query_at.slot), query_at.parity);
  tiles.queries_free = pipe.queries_free(query_at.slot);
  tiles.steps_left = steps;
  StepWalk<T> walk{group, tiles, pipe.queries(query_at.slot), row0 + kGroupRows - 1};
  walk.all(steps);
  if (T::kResident) warp_arrive(pipe.values_free(tiles.at.slot));
  // The last steps of causal rows may have been left out.
  if constexpr (T::kBiasPerItem && T::kCausal) tiles.bias.give_back();
  const bool again = group.outgrown();
  const int warp = threadIdx.x / kWarpSize;
  Epilogue<T>::store(p, group.place,
                     pipe.staging(warp / 4) + warp % 4 * T::kWarpRows * T::Rows::kPitch, group.o,
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
__device__ __forceinline__ void compute_streaming(const AttentionParams& p,
                                                  const Pipeline<T>& pipe) {
  const int warpgroup = threadIdx.x / kGroupThreads;
  RingPlace<T::kRing> at;
  RingPlace<T::kQuerySlots> query_at;
  query_at.slot = warpgroup;
  Turns<T> turns(pipe, warpgroup, T::kGroups);
  GroupBias<T> bias(pipe, warpgroup);
  const int rows = p.queries - spare_rows<T>(p.queries);
  bool again = false;
  if constexpr (T::kKeepsBias) {
    if (warpgroup * kGroupRows < rows) keep_bias(p, bias, warpgroup);
  }
#pragma unroll 1
  for (int index = blockIdx.x; index < p.items; index = next_item<T>(index)) {
    const PipelinedItem<T> item(p, index);
    const int row0 = item.row0 + warpgroup * kGroupRows;
    StepTiles<T> tiles{pipe, at, turns, bias, 0, 0};
    if (row0 < (T::kEvenItems ? item.end : rows)) {
      const HeadPlace head(p, item.head_index);
      again |= attend_rows(p, pipe, head, row0, item.steps, query_at, tiles);
    } else {
      mbarrier_wait(pipe.queries_full(query_at.slot), query_at.parity);
      tiles.queries_free = pipe.queries_free(query_at.slot);
      tiles.steps_left = item.steps;
#pragma unroll 1
      for (int step = 0; step < item.steps; ++step) tiles.skip();
    }
    query_at.parity ^= 1;
  }
  if constexpr (T::kHoldsReference) {
#pragma unroll 1
    for (int index = blockIdx.x; again && index < p.items; index = next_item<T>(index)) {
      const PipelinedItem<T> item(p, index);
      const int row0 = item.row0 + warpgroup * kGroupRows;
      if (row0 >= (T::kEvenItems ? item.end : rows)) continue;
      compute_again<T>(p, group_rows(row0, HeadPlace(p, item.head_index)));
    }
  }
}

template <class T>
__device__ __forceinline__ void compute_resident(const AttentionParams& p,
                                                 const Pipeline<T>& pipe) {
  constexpr int kSteps = T::Keys::kCount;
  const int warpgroup = threadIdx.x / kGroupThreads;
  const int blocks = row_blocks<T>(p.queries);
  const int heads = (p.items - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  const int groups = resident_groups<T>(blocks);
  if (warpgroup >= groups) return;
  const int rounds = ceil_div(heads * blocks, groups);
  Turns<T> turns(pipe, warpgroup, groups);
  GroupBias<T> bias(pipe, warpgroup);
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
        turns.take();
        turns.pass();
      }
      continue;
    }
    RingPlace<T::kRing> at;
    at.slot = number % T::kRing;
    at.parity = number / T::kRing & 1;
    RingPlace<T::kQuerySlots> query_at;
    query_at.slot = block % T::kQuerySlots;
    query_at.parity = block / T::kQuerySlots & 1;
    StepTiles<T> tiles{pipe, at, turns, bias, 0, 0};
    const HeadPlace head(p, blockIdx.x + number * gridDim.x);
    const int row0 = own * kGroupRows;
    again |= attend_rows(p, pipe, head, row0, kSteps, query_at, tiles);
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
__device__ __forceinline__ void clear_tiles(const Pipeline<T>& pipe) {
  for (int slot = 0; slot < T::kRing; ++slot) {
    clear_last_chunk<typename T::KeyTile, T::kKeyRows, T::kThreads>(pipe.keys(slot), threadIdx.x);
  }
  for (int slot = 0; slot < T::kQuerySlots; ++slot) {
    clear_last_chunk<typename T::QueryTile, kGroupRows, T::kThreads>(pipe.queries(slot),
                                                                     threadIdx.x);
  }
  fence_proxy_async();
}

template <class T>
__device__ __forceinline__ void copy_role(const AttentionParams& p, const AttentionTensorMaps* maps,
                                          const Pipeline<T>& pipe) {
  const int warp = threadIdx.x / kWarpSize % 4;
  if constexpr (T::kLoneCopier) {
    if (threadIdx.x % kWarpSize == 0) copy_alone<T>(p, *maps, pipe);
  } else if constexpr (T::kTensorCopies) {
    if constexpr (T::kBiasTiles) {
      if (warp >= 2) copy_bias<T>(p, *maps, pipe);
    }
    if (warp >= 2 || threadIdx.x % kWarpSize != 0) return;
    CopyWalk<T, TensorCopies<T>>{p, pipe, {p, *maps}, {}, {}}.run(warp == 1);
  } else {
    CopyWalk<T, ThreadCopies<T>>{p, pipe, {p, pipe}, {}, {}}.run(warp >= 2);
  }
}

template <class T>
__device__ __forceinline__ void forward_pipelined(const AttentionParams& p,
                                                  const AttentionTensorMaps* maps) {
  extern __shared__ __align__(1024) char shared_memory[];
  const Pipeline<T> pipe{shared_address(shared_memory)};
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
    pipe.init(readers + (spare_rows<T>(p.queries) > 0 ? 4 : 0));
  }
  if constexpr (!T::kTensorCopies) clear_tiles<T>(pipe);
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= (T::kGroups + 1) * kGroupThreads) {
    if constexpr (T::kSpareRows > 0) {
      if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kSpareRegisters>();
      attend_spare_rows<T>(p, pipe);
    }
  } else if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    copy_role<T>(p, maps, pipe);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    if constexpr (T::kResident) {
      compute_resident<T>(p, pipe);
    } else {
      compute_streaming<T>(p, pipe);
    }
  }
}

template <class Config>
__device__ __forceinline__ void forward(const AttentionParams& p) {
  static_assert(Config::kProducer == 1, "kProducer = 2 needs tensor maps");
  forward_pipelined<PipelinedTraits<Config>>(p, nullptr);
}
template <class Config>
__device__ __forceinline__ void forward(const AttentionParams& p, const AttentionTensorMaps& maps) {
  forward_pipelined<PipelinedTraits<Config>>(p, &maps);
}

}  // namespace vitune
