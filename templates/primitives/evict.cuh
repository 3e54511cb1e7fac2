// templates/primitives/evict.cuh -- Sixteen bytes between global memory, registers and shared
// memory, with a word to L2 on how long to keep them.
//
// PTX ISA, "Cache Eviction Priority Hints" and "createpolicy", sm_80 and later. L1 is passed by.
#pragma once

#include "primitives/piece.cuh"
#include "primitives/types.cuh"

namespace vitune {

// The policies of data that leave L2 first, when it needs room, and last.
__device__ __forceinline__ u64 evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ u64 evict_last() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ Piece<16> load_piece_evict(const void* from, u64 policy) {
  Piece<16> v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
               : "l"(from), "l"(policy)
               : "memory");
  return v;
}

// To shared memory, asynchronously (copy.cuh).
__device__ __forceinline__ void cp_async_evict(u32 to, const void* from, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "l"(policy)
               : "memory");
}

// From registers to shared memory; load_shared_16() brings it back.
__device__ __forceinline__ void store_shared_piece(u32 to, const Piece<16>& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.words[0]), "r"(v.words[1]),
               "r"(v.words[2]), "r"(v.words[3])
               : "memory");
}

}  // namespace vitune
