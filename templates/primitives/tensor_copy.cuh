// templates/primitives/tensor_copy.cuh -- Boxes of a tensor to shared memory by one instruction.
//
// The tensor memory accelerator (PTX ISA, "cp.async.bulk.tensor", sm_90 and later) follows a tensor
// map that the host encoded: columns, rows, heads, batches. It writes the swizzled tiles of
// collective/smem_tile.cuh, and zeros for what lies outside the tensor. Bytes are counted by a
// barrier, zeros too.
#pragma once

#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"

namespace vitune {

// One arrival that makes the barrier's phase wait for `bytes` more.
__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Fetches a tensor map ahead of its first use.
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Starts the copy of the box whose first element is at {column, row, head, batch}; by one thread.
__device__ __forceinline__ void copy_box(u32 to, const void* map, u32 barrier, int column, int row,
                                         int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// Starts the copy of `bytes` (a multiple of 16) from a global address (likewise); by one thread.
__device__ __forceinline__ void copy_bytes(u32 to, u64 from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace vitune
