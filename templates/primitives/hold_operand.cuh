// templates/primitives/hold_operand.cuh -- Keeps a register that products under way read.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// `value` is still wanted here, behind the wait for the products that read it: without that, ptxas
// may give its register to another value at once.
__device__ __forceinline__ void hold_operand(u32& value) { asm volatile("" : "+r"(value)); }

}  // namespace vitune
