// templates/reference/attention_naive.cuh -- Rung 1 of the ladder: one thread per query row.
//
// Each thread reads every key and every value of its head from global memory, where neighbouring
// threads ask for the same ones, and does one product at a time.
#pragma once

#include "reference/ladder.cuh"

namespace vitune {

template <class Config>
__device__ inline void attention_naive(const AttentionParams& p) {
  constexpr int kHeadDim = Config::kHeadDim;
  const LadderHead head = ladder_head(p, blockIdx.y);
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.queries) return;

  float q[kHeadDim];
  ladder_load<Config>(q, head.q + row * p.q_view.row);
  LadderRow<kHeadDim> result;
  result.clear();
  for (int key = 0; key < p.keys; ++key) {
    float k[kHeadDim];
    ladder_load<Config>(k, head.k + key * p.k_view.row);
    float score = 0;
#pragma unroll
    for (int x = 0; x < kHeadDim; ++x) score += q[x] * k[x];
    score *= p.scale * kLog2E;

    if (score > result.maximum) result.rescale(score);
    const float weight = exp2_approx(score - result.maximum);
    result.sum += weight;
    float v[kHeadDim];
    ladder_load<Config>(v, head.v + key * p.v_view.row);
#pragma unroll
    for (int x = 0; x < kHeadDim; ++x) result.out[x] += weight * v[x];
  }
  ladder_store<Config>(head.o + row * p.o_view.row, result);
}

}  // namespace vitune
