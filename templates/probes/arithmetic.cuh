// templates/probes/arithmetic.cuh -- Probes of single threads' units: multiply-add and exponential.
//
// A thread has kProbeChains chains of operations that each need the one before; they and the other
// warps of the SM keep the unit busy.
#pragma once

#include "primitives/math.cuh"
#include "probes/probe_params.cuh"
#include "probes/span.cuh"

namespace vitune {

// Stores what the chains end with, and how long the first warp took.
__device__ inline void finish_chains(const ProbeRateParams& p, const float (&x)[kProbeChains],
                                     const Clocks& start) {
  note_span(p, start);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kProbeChains; ++i) sum += x[i];
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__device__ inline void start_chains(float (&x)[kProbeChains]) {
#pragma unroll
  for (int i = 0; i < kProbeChains; ++i) x[i] = probe_value(0, threadIdx.x, i);
}

// Each pair of chains turns on an ellipse, so that values neither grow nor settle.
__device__ inline void probe_fma(const ProbeRateParams& p) {
  float x[kProbeChains];
  start_chains(x);
  const Clocks start = read_clocks();
#pragma unroll 1
  for (int round = 0; round < p.rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kProbeUnroll; ++step) {
#pragma unroll
      for (int i = 0; i < kProbeChains; i += 2) {
        x[i] = __fmaf_rn(x[i + 1], kProbeAngle, x[i]);
        x[i + 1] = __fmaf_rn(x[i], -kProbeAngle, x[i + 1]);
      }
    }
  }
  finish_chains(p, x, start);
}

// x = 2^-x settles at 0.641186 from any start. The sign is part of the instruction.
__device__ inline void probe_exp2(const ProbeRateParams& p) {
  float x[kProbeChains];
  start_chains(x);
  const Clocks start = read_clocks();
#pragma unroll 1
  for (int round = 0; round < p.rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kProbeUnroll; ++step) {
#pragma unroll
      for (int i = 0; i < kProbeChains; ++i) x[i] = exp2_approx(-x[i]);
    }
  }
  finish_chains(p, x, start);
}

}  // namespace vitune
