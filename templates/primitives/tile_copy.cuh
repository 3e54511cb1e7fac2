// templates/primitives/tile_copy.cuh -- Boxes of a matrix to shared memory and back.
//
// As tensor_copy.cuh, over {column, row}. What lies outside the matrix is read as zeros, counted by
// the barrier like the rest, and not written.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Starts the copy of the box whose first element is at {column, row}; by one thread.
__device__ __forceinline__ void copy_tile(u32 to, const void* map, u32 barrier, int column,
                                          int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

// The same into each CTA of the cluster whose bit is set in `ranks`: to the place that has this
// address there, counted by the barrier that has this address there.
__device__ __forceinline__ void copy_tile_to_ranks(u32 to, const void* map, u32 barrier, int column,
                                                   int row, u16 ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(ranks)
      : "memory");
}

// Starts the copy of a box back, as a group of its own; by one thread. Ordinary writes to it need
// fence_proxy_async() by their threads, then a barrier.
__device__ __forceinline__ void store_tile(u32 from, const void* map, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(from), "r"(column), "r"(row)
      : "memory");
}

// Waits until at most kPending of this thread's newest groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace vitune
