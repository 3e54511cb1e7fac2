// templates/probes/span.cuh -- How fast the SM's clock ran while a probe was at work.
#pragma once

#include "primitives/clocks.cuh"
#include "probes/probe_params.cuh"

namespace vitune {

// Notes what has passed since `start`, for one thread. It need not be the whole launch: warps of an
// SM end one after the other, but all by one clock.
__device__ inline void note_span(const ProbeRateParams& p, const Clocks& start) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const Clocks end = read_clocks();
  p.span[0] = end.cycles - start.cycles;
  p.span[1] = end.nanoseconds - start.nanoseconds;
}

}  // namespace vitune
