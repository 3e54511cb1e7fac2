// templates/primitives/sync.cuh -- Barriers over a part of a CTA.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// All kThreads threads that name barrier kId. The number is an immediate: one taken at run time
// reserves all 16 barriers of the CTA and so limits how many CTAs share an SM.
template <int kId, int kThreads>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// Barrier of group `group` of kGroups equal groups of kThreads threads each. It is a named one even
// where the group is the CTA: warps without work may meet it at another place of the code.
template <int kGroups, int kThreads>
__device__ __forceinline__ void group_barrier(int group) {
  static_assert(kGroups >= 1 && kGroups <= 8, "a CTA is split into 1 to 8 groups");
  if constexpr (kThreads == kWarpSize) {
    __syncwarp();
  } else if constexpr (kGroups == 1) {
    named_barrier<1, kThreads>();
  } else {
    if (group == 0) named_barrier<1, kThreads>();
    if (group == 1) named_barrier<2, kThreads>();
    if (kGroups > 2 && group == 2) named_barrier<3, kThreads>();
    if (kGroups > 2 && group == 3) named_barrier<4, kThreads>();
    if (kGroups > 4 && group == 4) named_barrier<5, kThreads>();
    if (kGroups > 4 && group == 5) named_barrier<6, kThreads>();
    if (kGroups > 4 && group == 6) named_barrier<7, kThreads>();
    if (kGroups > 4 && group == 7) named_barrier<8, kThreads>();
  }
}

}  // namespace vitune
