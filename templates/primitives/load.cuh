// templates/primitives/load.cuh -- Global loads that say which caches they use.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Sixteen bytes through L2 and past L1; `from` is aligned to 16. Volatile: a load is not left out
// because an earlier one had the same address.
__device__ __forceinline__ uint4 load_past_l1(const void* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

}  // namespace vitune
