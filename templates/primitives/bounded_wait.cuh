// templates/primitives/bounded_wait.cuh -- Waits that end a kernel that hangs.
//
// For kernels under test: a barrier that nobody completes becomes an error of the launch instead of
// a device that never answers.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// mbarrier_wait(); ends the kernel with an error after some seconds.
__device__ __forceinline__ void mbarrier_wait_bounded(u32 barrier, u32 parity) {
  constexpr long long kMostClocks = 4000000000;
  const long long start = clock64();
  for (u32 done = 0; done == 0;) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done == 0 && clock64() - start > kMostClocks) asm volatile("trap;");
  }
}

}  // namespace vitune
