// templates/probes/tensor_sm90.cuh -- Probe of the tensor cores through wgmma (compute capability
// 9.0 only): m64n256k16, bf16 products, fp32 sums, both operands in shared memory.
//
// Two warpgroups alternate: one multiplies while the other one waits for its sums. The
// operands are random: zeros would take less power and so raise the clocks.
#pragma once

#include "collective/smem_tile.cuh"
#include "primitives/shared.cuh"
#include "primitives/wgmma.cuh"
#include "probes/span.cuh"
#include "probes/tensor.cuh"

namespace vitune {

using ProbeTileA = SmemTile<kWgmmaDepth, 64, kWgmmaSwizzle>;
using ProbeTileB = SmemTile<kWgmmaDepth, kWgmmaColumns, kWgmmaSwizzle>;

// Rows first_row .. of an operand into a tile, by the whole CTA.
template <class Tile>
__device__ inline void fill_probe_tile(u32 tile, u32 operand, u32 first_row, int rows) {
  for (int i = threadIdx.x; i < rows * kWgmmaDepth / 2; i += kTensorThreads) {
    const int row = i / (kWgmmaDepth / 2), column = 2 * (i % (kWgmmaDepth / 2));
    store_shared(tile + Tile::offset(row, column / 8) + column % 8 * 2,
                 probe_pair(operand, first_row + row, column));
  }
}

// Warpgroup w multiplies rows 64 w .. of operand 0 with operand 1, transposed.
__device__ inline void probe_wgmma(const ProbeRateParams& p) {
  constexpr int kSteps = kWgmmaDepth / 16;
  extern __shared__ __align__(1024) char shared_memory[];
  const u32 a = shared_address(shared_memory) + threadIdx.x / 128 * ProbeTileA::kBytes;
  const u32 b = shared_address(shared_memory) + 2 * ProbeTileA::kBytes;
  fill_probe_tile<ProbeTileA>(shared_address(shared_memory), 0, 0, 64);
  fill_probe_tile<ProbeTileA>(shared_address(shared_memory) + ProbeTileA::kBytes, 0, 64, 64);
  fill_probe_tile<ProbeTileB>(b, 1, 0, kWgmmaColumns);
  fence_proxy_async();
  __syncthreads();
  const u64 descriptor_a = descriptor_k_major<kWgmmaSwizzle>(a);
  const u64 descriptor_b = descriptor_k_major<kWgmmaSwizzle>(b);
  float d[kWgmmaColumns / 2];
#pragma unroll
  for (int i = 0; i < kWgmmaColumns / 2; ++i) d[i] = 0;
  const Clocks start = read_clocks();
#pragma unroll 1
  for (int round = 0; round < p.rounds; ++round) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kProbeUnroll; ++i) {
      const int at = ProbeTileA::step_offset(i % kSteps);
      Wgmma<1, kWgmmaColumns>::shared_a(d, descriptor_at(descriptor_a, at),
                                        descriptor_at(descriptor_b, at), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWgmmaColumns / 2; ++i) sum += d[i];
  p.out[blockIdx.x * kTensorThreads + threadIdx.x] = sum;
  note_span(p, start);
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(vitune::kTensorThreads, 1)
    vitune_probe_wgmma(const __grid_constant__ vitune::ProbeRateParams params) {
  vitune::probe_wgmma(params);
}
