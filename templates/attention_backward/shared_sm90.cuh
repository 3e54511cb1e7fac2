// templates/attention_backward/shared_sm90.cuh -- The shared memory of a pass of the family sm90:
// tiles of rows, a ring of steps, and their barriers (collective/pipeline.cuh).
//
// A slot of the ring has a tile of each of a step's two operands, and in a pass over keys numbers
// of its queries. Each warp of each warpgroup waits for every phase of every slot.
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "collective/pipeline.cuh"
#include "primitives/mbarrier.cuh"
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
// one thread, which has told the barrier `full` of Tile::kBytes.
template <class Tile, int kRows, int kBoxRows>
__device__ __forceinline__ void tma_load_rows(u32 tile, const void* map, u32 full, int row,
                                              int head, int batch) {
#pragma unroll
  for (int atom = 0; atom < Tile::kAtoms; ++atom) {
#pragma unroll
    for (int box = 0; box < kRows; box += kBoxRows) {
      copy_box(tile + atom * Tile::kAtomBytes + box * Tile::kRowBytes, map, full,
               atom * Tile::kAtomColumns, row + box, head, batch);
    }
  }
}

}  // namespace vitune
