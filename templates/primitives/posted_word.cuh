// templates/primitives/posted_word.cuh -- Two numbers that a CTA posts in global memory, and others
// wait for.
//
// A word is 8 bytes, read and written at once: it needs no fence, since it brings nothing but
// itself. 0 means that nothing is there yet; the second number is not negative, and its sign bit
// says that the word was posted. Waiting is for CTAs that run at once
// (LaunchShape::is_cooperative).
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Before the launch of those who wait, in stream order.
__device__ __forceinline__ void clear_word(void* at) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(u64(0)) : "memory");
}

__device__ __forceinline__ void post_word(void* at, float first, float second) {
  const u64 word = u64(__float_as_uint(second) | 0x80000000u) << 32 | __float_as_uint(first);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}

// Waits for `count` words, of which this thread takes word i * kStride at place i; all that are
// missing are asked for at once.
template <int kStride, int kMost>
__device__ __forceinline__ void wait_for_words(const void* at, int count, float2 (&words)[kMost]) {
  for (bool missing = true; missing;) {
    missing = false;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (i * kStride >= count) continue;
      u64 word;
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                   : "=l"(word)
                   : "l"(static_cast<const char*>(at) + 8 * i * kStride)
                   : "memory");
      words[i] = {__uint_as_float(u32(word)), __uint_as_float(u32(word >> 32) & 0x7fffffffu)};
      missing |= word == 0;
    }
  }
}

}  // namespace vitune
