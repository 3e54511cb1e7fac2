// templates/probes/memory.cuh -- Probes of memory: fill, copy, read.
//
// Each CTA takes every gridDim-th tile of kProbeTileBytes. A thread has kProbeVectors loads in
// flight; neighbouring threads read neighbouring vectors.
#pragma once

#include "primitives/copy.cuh"
#include "primitives/load.cuh"
#include "probes/probe_params.cuh"

namespace vitune {

__device__ inline void probe_fill(const ProbeFillParams& p) {
  const u64 threads = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < p.words; i += threads) {
    p.data[i] = u32(i) * kProbeStep;
  }
}

// This thread's vectors of one tile.
__device__ inline void load_tile(uint4 (&v)[kProbeVectors], const void* data, u32 tile) {
  const char* from = static_cast<const char*>(data) + u64(tile) * kProbeTileBytes;
#pragma unroll
  for (int i = 0; i < kProbeVectors; ++i) {
    v[i] = load_past_l1(from + (i * kProbeThreads + threadIdx.x) * 16);
  }
}

__device__ inline void probe_copy(const ProbeCopyParams& p) {
  for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    uint4 v[kProbeVectors];
    load_tile(v, p.from, tile);
    char* to = static_cast<char*>(p.to) + u64(tile) * kProbeTileBytes;
#pragma unroll
    for (int i = 0; i < kProbeVectors; ++i) {
      store_chunk<16>(to + (i * kProbeThreads + threadIdx.x) * 16, v[i]);
    }
  }
}

// In each pass a CTA takes the tiles of another one, so that all get the same share in the end.
__device__ inline void probe_read(const ProbeReadParams& p) {
  constexpr u32 kTilesAhead = 37;
  u32 sum = 0;
  for (int round = 0; round < p.rounds; ++round) {
    const u32 first = (blockIdx.x + u32(round) * kTilesAhead) % gridDim.x;
    for (u32 tile = first; tile < p.tiles; tile += gridDim.x) {
      uint4 v[kProbeVectors];
      load_tile(v, p.data, tile);
#pragma unroll
      for (int i = 0; i < kProbeVectors; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
    }
  }
  p.out[blockIdx.x * kProbeThreads + threadIdx.x] = sum;
}

}  // namespace vitune
