// templates/attention_backward/shared_sm90.cuh -- The shared memory of a pass of the family sm90:
// tiles of rows, a ring of steps, and their barriers (collective/pipeline.cuh); and the roles that
// warps have in a pass.
//
// A slot of the ring has a tile of each of a step's two operands, and in a pass over keys numbers
// of its queries. Each warp of each warpgroup waits for every phase of every slot.
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "collective/pipeline.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/sync.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

template <class T>
struct BackwardShared {
  u32 base;

  // The tile of the rows' operand number `operand`.
  __device__ __forceinline__ u32 rows(int operand) const {
    return base + operand * T::RowTile::kBytes;
  }
  __device__ __forceinline__ u32 first(int slot) const {
    return base + T::kRingOffset + slot * T::kStageBytes;
  }
  __device__ __forceinline__ u32 second(int slot) const {
    return first(slot) + T::StepTile::kBytes;
  }
  __device__ __forceinline__ u32 stats(int slot) const {
    return base + T::kStatsOffset + slot * T::kStatsBytes;
  }
  __device__ __forceinline__ u32 staging(int group) const {
    return base + T::kStagingOffset + group * T::kStagingBytes;
  }
  __device__ __forceinline__ u32 rows_full() const { return barrier(0); }
  __device__ __forceinline__ u32 rows_empty() const { return barrier(1); }
  __device__ __forceinline__ u32 full(int slot) const { return barrier(2 + slot); }
  __device__ __forceinline__ u32 empty(int slot) const { return barrier(2 + T::kStages + slot); }

  // By one thread, before any other uses a barrier.
  __device__ __forceinline__ void init() const {
    mbarrier_init(rows_full(), 1);
    mbarrier_init(rows_empty(), 4 * T::kGroups);
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(full(slot), 1);
      mbarrier_init(empty(slot), 4 * T::kGroups);
    }
    mbarrier_init_fence();
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return base + T::kBarrierOffset + 8 * index;
  }
};

// Waits until a tile is empty that loads have read, not products alone; by the thread that copies.
__device__ __forceinline__ void wait_for_loaded(u32 empty, u32 phase) {
  mbarrier_wait(empty, phase ^ 1);
  fence_proxy_async();
}

// Starts the copy of kRows rows of a head into a tile, from row `row` on, in boxes of kBoxRows; by
// one thread, which has told the barrier `full` of Tile::kBytes. A policy of L2 may come last.
template <class Tile, int kRows, int kBoxRows, class... Policy>
__device__ __forceinline__ void tma_load_rows(u32 tile, const void* map, u32 full, int row,
                                              int head, int batch, Policy... policy) {
#pragma unroll
  for (int atom = 0; atom < Tile::kAtoms; ++atom) {
#pragma unroll
    for (int box = 0; box < kRows; box += kBoxRows) {
      copy_box(tile + atom * Tile::kAtomBytes + box * Tile::kRowBytes, map, full,
               atom * Tile::kAtomColumns, row + box, head, batch, policy...);
    }
  }
}

// Starts the copies of a block's rows of head `head`, the tiles of kOperands tensors one after the
// other; by one thread.
template <class T, int kOperands>
__device__ __forceinline__ void load_row_tiles(u32 tiles, const void* const (&maps)[kOperands],
                                               u32 full, int row0, int head, int batch) {
  mbarrier_expect(full, kOperands * T::RowTile::kBytes);
#pragma unroll
  for (int i = 0; i < kOperands; ++i) {
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(tiles + i * T::RowTile::kBytes,
                                                                  maps[i], full, row0, head, batch);
  }
}

// Starts the copies of both tiles of a step, from row `row` of head `head` on; by one thread, which
// has told the slot's barrier of T::kStageBytes.
template <class T>
__device__ __forceinline__ void load_step_tiles(const BackwardShared<T>& shared, int slot,
                                                const void* first, const void* second, int row,
                                                int head, int batch) {
  tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.first(slot), first,
                                                          shared.full(slot), row, head, batch);
  tma_load_rows<typename T::StepTile, T::kStep, T::kStep>(shared.second(slot), second,
                                                          shared.full(slot), row, head, batch);
}

// A step of a block that a warpgroup has no rows of.
template <class T>
__device__ __forceinline__ void pass_step(const BackwardShared<T>& shared,
                                          PipelineState<T::kStages>& at) {
  mbarrier_wait(shared.full(at.index), at.phase);
  release_tile<1>(shared.empty(at.index));
  at.advance();
}

// A pass, whose barriers Shared::init() makes: produce(shared) by the thread that copies,
// consume(shared) by the warpgroups that compute.
template <class T, class Shared, class Produce, class Consume>
__device__ __forceinline__ void run_pass(const void* row_map, const void* step_map,
                                         Produce&& produce, Consume&& consume) {
  constexpr int kCopier = T::kGroups * kGroupThreads;
  extern __shared__ __align__(1024) char shared_memory[];
  const Shared shared{shared_address(shared_memory)};
  if (threadIdx.x == kCopier) {
    prefetch_map(row_map);
    prefetch_map(step_map);
  }
  if (threadIdx.x == 0) shared.init();
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= kCopier) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == kCopier) produce(shared);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    consume(shared);
  }
}

}  // namespace vitune
