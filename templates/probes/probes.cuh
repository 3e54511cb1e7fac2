// templates/probes/probes.cuh -- Entry points of the probes that every architecture has.
#pragma once

#include "probes/arithmetic.cuh"
#include "probes/memory.cuh"
#include "probes/tensor.cuh"

#define VITUNE_PROBE(name, Params, body, threads, ctas)       \
  extern "C" __global__ void __launch_bounds__(threads, ctas) \
      name(const __grid_constant__ vitune::Params params) {   \
    vitune::body(params);                                     \
  }

VITUNE_PROBE(vitune_probe_fill, ProbeFillParams, probe_fill, vitune::kProbeThreads, 2)
VITUNE_PROBE(vitune_probe_copy, ProbeCopyParams, probe_copy, vitune::kProbeThreads, 2)
VITUNE_PROBE(vitune_probe_read, ProbeReadParams, probe_read, vitune::kProbeThreads, 2)
VITUNE_PROBE(vitune_probe_fma, ProbeRateParams, probe_fma, vitune::kProbeThreads, 2)
VITUNE_PROBE(vitune_probe_exp2, ProbeRateParams, probe_exp2, vitune::kProbeThreads, 2)
VITUNE_PROBE(vitune_probe_mma, ProbeRateParams, probe_mma, vitune::kTensorThreads, 1)

#undef VITUNE_PROBE
