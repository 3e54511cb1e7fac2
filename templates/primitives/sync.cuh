// templates/primitives/sync.cuh -- Barriers over a part of a CTA, and between grids.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Before a thread's first access to global memory: until the grids that were launched before this
// one have ended and what they wrote is seen. Where the launch did not ask for an early start
// (LaunchShape::waits_for_earlier), that is so already. PTX ISA, griddepcontrol.
__device__ __forceinline__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// All kThreads threads that name barrier kId. The number is an immediate: one taken at run time
// reserves all 16 barriers of the CTA and so limits how many CTAs share an SM.
template <int kId, int kThreads>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// The same where warps come from different places of the code; the other form asks for one.
template <int kId, int kThreads>
__device__ __forceinline__ void meeting_barrier() {
  asm volatile("barrier.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// Barrier of group `group` of kGroups equal groups of kThreads threads each, from any place.
template <int kGroups, int kThreads>
__device__ __forceinline__ void group_barrier(int group) {
  static_assert(kGroups >= 1 && kGroups <= 8, "a CTA is split into 1 to 8 groups");
  if constexpr (kThreads == kWarpSize) {
    __syncwarp();
  } else {
    if (kGroups == 1 || group == 0) meeting_barrier<1, kThreads>();
    if (kGroups > 1 && group == 1) meeting_barrier<2, kThreads>();
    if (kGroups > 2 && group == 2) meeting_barrier<3, kThreads>();
    if (kGroups > 2 && group == 3) meeting_barrier<4, kThreads>();
    if (kGroups > 4 && group == 4) meeting_barrier<5, kThreads>();
    if (kGroups > 4 && group == 5) meeting_barrier<6, kThreads>();
    if (kGroups > 4 && group == 6) meeting_barrier<7, kThreads>();
    if (kGroups > 4 && group == 7) meeting_barrier<8, kThreads>();
  }
}

}  // namespace vitune
