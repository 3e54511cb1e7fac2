// templates/primitives/mbarrier.cuh -- Barriers in shared memory that count arrivals, by phases.
//
// PTX ISA, "mbarrier". A phase ends when the expected number of arrivals has come; then the next
// one begins. Waiting for parity 1 on a fresh barrier returns at once. 8 bytes each, 8-byte
// aligned.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After the last mbarrier_init(): asynchronous copies see the barriers.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// This thread arrives when all cp.async it has started so far are complete. It does not wait.
__device__ __forceinline__ void mbarrier_arrive_when_copied(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity has ended. What others did before they arrived is seen
// after; for products also fence_proxy_async() is needed.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait_for_phase:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_for_phase;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Registers per thread of this warpgroup from here on; every warp of it takes part. What warpgroups
// give up and what they ask for must balance, else the call never returns.
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace vitune
