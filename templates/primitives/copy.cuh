// templates/primitives/copy.cuh -- Global to shared memory without registers (cp.async) and back.
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Copies kBytes (16, 8 or 4) asynchronously; writes zeros instead where `valid` is false.
template <int kBytes>
__device__ __forceinline__ void cp_async(u32 to, const void* from, bool valid) {
  const u32 size = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(size)
                 : "memory");
  }
}

// Copies 16 bytes in pieces of kBytes: what the alignment of the tensor allows. Two bytes at a time
// goes through registers and is complete at once; the others complete with their commit group.
template <int kBytes>
__device__ __forceinline__ void copy_chunk(u32 to, const void* from, bool valid) {
  const char* source = static_cast<const char*>(from);
  if constexpr (kBytes >= 4) {
#pragma unroll
    for (int i = 0; i < 16; i += kBytes) cp_async<kBytes>(to + i, source + i, valid);
  } else {
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      store_shared_u16(to + i, valid ? *reinterpret_cast<const u16*>(source + i) : u16(0));
    }
  }
}

// Closes a group of asynchronous copies.
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's newest groups are in flight.
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The same value, of which the compiler knows nothing: what follows from it is computed here and
// not kept in registers from an earlier place.
__device__ __forceinline__ int recomputed(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Stores 16 bytes to global memory in pieces of kBytes. The widest is spelled out: left to itself
// the compiler splits all but the first of a loop's stores into words.
template <int kBytes>
__device__ __forceinline__ void store_chunk(void* to, uint4 value) {
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
    return;
  }
  const u32 words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (kBytes >= 4 && i % 2 == 0) static_cast<u32*>(to)[i / 2] = words[i / 2];
    if (kBytes == 2) static_cast<u16*>(to)[i] = u16(words[i / 2] >> (16 * (i % 2)));
  }
}

}  // namespace vitune
