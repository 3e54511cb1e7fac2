// templates/primitives/shared_numbers.cuh -- fp32 numbers from registers to shared memory.
//
// For sums of products, as number_store.cuh.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Two, at a multiple of 8 bytes.
__device__ __forceinline__ void store_shared_numbers(u32 address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(address), "f"(first), "f"(second)
               : "memory");
}

}  // namespace vitune
