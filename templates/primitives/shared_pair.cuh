// templates/primitives/shared_pair.cuh -- Eight bytes of shared memory at once.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ uint2 load_shared_8(u32 address) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}

}  // namespace vitune
