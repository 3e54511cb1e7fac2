// templates/reference/support_kernels.cuh -- Entry points of what a bench worker runs beside the
// candidates: inputs, comparison, and what timing needs. Who knows the answers is the operators'.
#pragma once

#include "reference/compare.cuh"
#include "reference/inputs.cuh"

namespace vitune {

// Reads a buffer that is larger than the L2. Writing it instead would leave the L2 full of dirty
// lines whose write-back the next kernel would pay for.
__device__ inline void flush_l2(const FlushParams& p) {
  RefU32 sum = 0;
  for (RefU64 i = global_thread(); i < p.vectors; i += global_threads()) {
    const uint4 v = static_cast<const uint4*>(p.data)[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == p.impossible) *p.sink = sum;
}

// Bounded twice: by the clock, and by a number of steps that no clock outlasts.
__device__ inline void spin(const SpinParams& p) {
  const long long start = clock64();
  float x = float(threadIdx.x);
  for (long long step = 0; step <= p.cycles / 16; ++step) {
    if (clock64() - start >= p.cycles) break;
    for (int i = 0; i < 16; ++i) x = __fmaf_rn(x, 0.9999f, 1.f);
  }
  if (x < 0) *p.sink = 1;
}

__device__ inline void anchor(const AnchorParams& p) {
  float x = float(threadIdx.x);
#pragma unroll 16
  for (int i = 0; i < p.steps; ++i) x = __fmaf_rn(x, p.factor, 1.f);
  if (threadIdx.x == 0) p.sink[blockIdx.x] = x;
}

__device__ inline void probe(const ProbeParams& p) {
  for (RefU64 i = global_thread(); i < p.count; i += global_threads()) {
    p.data[i] = RefU32(i) * p.factor;
  }
}

}  // namespace vitune

#define VITUNE_SUPPORT_KERNEL(name, Params, body)           \
  extern "C" __global__ void __launch_bounds__(256, 2)      \
      name(const __grid_constant__ vitune::Params params) { \
    vitune::body(params);                                   \
  }

VITUNE_SUPPORT_KERNEL(vitune_fill_normal, FillNormalParams, fill_normal)
VITUNE_SUPPORT_KERNEL(vitune_fill_mask, FillMaskParams, fill_mask)
VITUNE_SUPPORT_KERNEL(vitune_compare_outputs, CompareParams, compare_outputs)
VITUNE_SUPPORT_KERNEL(vitune_digest_words, DigestParams, digest_words)
VITUNE_SUPPORT_KERNEL(vitune_count_damage, DamageParams, count_damage)
VITUNE_SUPPORT_KERNEL(vitune_flush_l2, FlushParams, flush_l2)
VITUNE_SUPPORT_KERNEL(vitune_spin, SpinParams, spin)
VITUNE_SUPPORT_KERNEL(vitune_anchor, AnchorParams, anchor)
VITUNE_SUPPORT_KERNEL(vitune_probe, ProbeParams, probe)

#undef VITUNE_SUPPORT_KERNEL
