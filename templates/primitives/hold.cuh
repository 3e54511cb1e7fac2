// templates/primitives/hold.cuh -- Keeps the compiler from using a register's content earlier.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Reads of `value` below this call stay below it: of sums of wgmma, after the wait before. Without
// it copies of them may be made above, and ptxas 13.0 then takes products one at a time (C7514).
__device__ __forceinline__ void hold(float& value) { asm volatile("" : "+f"(value)); }

}  // namespace vitune
