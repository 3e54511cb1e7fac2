// templates/primitives/store_async.cuh -- Words to a CTA of the cluster, counted by its barrier.
//
// PTX ISA, "st.async", sm_90 and later. No fence: whoever has waited for the barrier's phase sees
// the words. For this a barrier may count bytes before its phase expects them.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Stores two words at `to` (aligned to 8), of which the barrier counts 8 bytes; both are addresses
// within the cluster in the same CTA (cluster.cuh).
__device__ __forceinline__ void store_async_8(u32 to, u32 first, u32 second, u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];" ::
          "r"(to),
      "r"(first), "r"(second), "r"(barrier)
      : "memory");
}

}  // namespace vitune
