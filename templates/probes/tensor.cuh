// templates/probes/tensor.cuh -- Probe of the tensor cores through mma.sync: bf16 products, fp32
// sums.
//
// Every warp multiplies kMmaTiles tiles of A (16 x 16) with as many of B (16 x 8), all in
// registers, again and again. The operands are random: zeros would take less power and so raise the
// clocks.
#pragma once

#include "primitives/element.cuh"
#include "probes/probe_params.cuh"
#include "probes/span.cuh"

namespace vitune {

using ProbeElement = Element<1>;

// Two neighbours of a row of an operand in one register.
__device__ inline u32 probe_pair(u32 operand, u32 row, u32 column) {
  return ProbeElement::pack(probe_value(operand, row, column),
                            probe_value(operand, row, column + 1));
}

// A's tile i is rows 16 i .. of operand 0; B's tile j is rows 8 j .. of operand 1, transposed.
__device__ inline void load_probe_fragments(u32 (&a)[kMmaTiles][4], u32 (&b)[kMmaTiles][2]) {
  const u32 g = threadIdx.x % kWarpSize / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kMmaTiles; ++i) {
    for (int r = 0; r < 4; ++r) {
      a[i][r] = probe_pair(0, 16 * i + g + 8 * (r % 2), 2 * t + 8 * (r / 2));
    }
    for (int r = 0; r < 2; ++r) b[i][r] = probe_pair(1, 8 * i + g, 2 * t + 8 * r);
  }
}

__device__ inline void probe_mma(const ProbeRateParams& p) {
  u32 a[kMmaTiles][4], b[kMmaTiles][2];
  float d[kMmaTiles][kMmaTiles][4] = {};
  load_probe_fragments(a, b);
  const Clocks start = read_clocks();
#pragma unroll 1
  for (int round = 0; round < p.rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kMmaTiles; ++j) ProbeElement::mma(d[i][j], a[i], b[j][0], b[j][1]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMmaTiles * kMmaTiles * 4; ++i) {
    sum += d[i / (4 * kMmaTiles)][i / 4 % kMmaTiles][i % 4];
  }
  p.out[blockIdx.x * kTensorThreads + threadIdx.x] = sum;
  note_span(p, start);
}

}  // namespace vitune
