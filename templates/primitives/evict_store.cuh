// templates/primitives/evict_store.cuh -- Boxes of a tensor to shared memory, and sixteen bytes to
// global memory, with a word to L2 on how long to keep them (evict.cuh).
#pragma once

#include "primitives/evict.cuh"
#include "primitives/types.cuh"

namespace vitune {

// As copy_box() of tensor_copy.cuh.
__device__ __forceinline__ void copy_box(u32 to, const void* map, u32 barrier, int column, int row,
                                         int head, int batch, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy)
      : "memory");
}

// As load_past_l1() of load.cuh and store_chunk<16>() of copy.cuh.
__device__ __forceinline__ uint4 load_chunk_evict(const void* from, u64 policy) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from), "l"(policy)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_chunk_evict(void* to, uint4 v, u64 policy) {
  asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(to), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy)
               : "memory");
}

}  // namespace vitune
