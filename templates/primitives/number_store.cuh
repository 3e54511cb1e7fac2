// templates/primitives/number_store.cuh -- fp32 numbers from registers to global memory.
//
// For sums of products: as words (piece.cuh) they would be moved to other registers before the
// products are waited for.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Two, at a multiple of 8 bytes.
__device__ __forceinline__ void store_numbers(float* to, float first, float second) {
  asm volatile("st.global.v2.f32 [%0], {%1,%2};" ::"l"(to), "f"(first), "f"(second) : "memory");
}

}  // namespace vitune
