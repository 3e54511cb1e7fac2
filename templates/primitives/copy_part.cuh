// templates/primitives/copy_part.cuh -- The first bytes of a 16-byte chunk, zeros behind them.
#pragma once

#include "primitives/copy.cuh"

namespace vitune {

// Copies the first `valid` (even, 0 to 16) of 16 bytes from global to shared memory, in pieces of
// kBytes, what the alignment of `from` allows, and writes zeros after them. Nothing behind the
// valid bytes is read. Completes as copy_chunk() does.
template <int kBytes>
__device__ __forceinline__ void copy_part(u32 to, const void* from, int valid) {
  const char* source = static_cast<const char*>(from);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(valid)
                 : "memory");
  } else if constexpr (kBytes >= 4) {
#pragma unroll
    for (int i = 0; i < 16; i += kBytes) {
      const int size = min(max(valid - i, 0), kBytes);
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to + i), "l"(source + i),
                   "n"(kBytes), "r"(size)
                   : "memory");
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      store_shared_u16(to + i, i < valid ? *reinterpret_cast<const u16*>(source + i) : u16(0));
    }
  }
}

}  // namespace vitune
