// templates/primitives/permute.cuh -- Any four bytes of two words, or their signs.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Byte i of the result is the byte of {high, low} whose number the lower three bits of nibble i of
// `selector` say (0 to 3: of `low`); where the nibble's upper bit is set, that byte's sign eight
// times: 0 or 255.
__device__ __forceinline__ u32 permute_bytes(u32 low, u32 high, u32 selector) {
  u32 bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

}  // namespace vitune
