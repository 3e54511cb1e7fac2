// templates/reference/attention_tiled.cuh -- Rung 2 of the ladder: tiles in shared memory.
//
// A CTA of kTiledRows threads owns as many query rows of one head. It loads 32 keys and values at
// a time together, each element once, and every thread then reads them from shared memory. The
// running maximum changes once per four keys instead of once per key.
#pragma once

#include "reference/ladder.cuh"

namespace vitune {

inline constexpr int kTiledRows = 128;
inline constexpr int kTiledKeys = 32;
inline constexpr int kTiledGroup = 4;  // keys per change of the running maximum

// Keys key0 .. of one tensor as fp32; zeros past the last key.
template <class Config>
__device__ inline void load_tiled(float (&tile)[kTiledKeys][Config::kHeadDim], const u16* source,
                                  i64 stride, int key0, int keys) {
  constexpr int kPairs = Config::kHeadDim / 2;
  for (int i = threadIdx.x; i < kTiledKeys * kPairs; i += kTiledRows) {
    const int key = i / kPairs, x = i % kPairs * 2;
    u32 pair = 0;
    if (key0 + key < keys) {
      pair = *reinterpret_cast<const u32*>(source + (key0 + key) * stride + x);
    }
    tile[key][x] = Element<Config::kElement>::low(pair);
    tile[key][x + 1] = Element<Config::kElement>::high(pair);
  }
}

template <class Config>
__device__ inline void attention_tiled(const AttentionParams& p) {
  constexpr int kHeadDim = Config::kHeadDim;
  __shared__ float k[kTiledKeys][kHeadDim];
  __shared__ float v[kTiledKeys][kHeadDim];
  const LadderHead head = ladder_head(p, blockIdx.y);
  const int row = blockIdx.x * kTiledRows + threadIdx.x;
  // A thread without a row helps to load, and computes the last row once more.
  const int query = row < p.queries ? row : p.queries - 1;

  float q[kHeadDim];
  ladder_load<Config>(q, head.q + query * p.q_view.row);
  LadderRow<kHeadDim> result;
  result.clear();
  for (int key0 = 0; key0 < p.keys; key0 += kTiledKeys) {
    __syncthreads();  // the tiles are still being read
    load_tiled<Config>(k, head.k, p.k_view.row, key0, p.keys);
    load_tiled<Config>(v, head.v, p.v_view.row, key0, p.keys);
    __syncthreads();

#pragma unroll 1
    for (int first = 0; first < kTiledKeys; first += kTiledGroup) {
      float scores[kTiledGroup], top = result.maximum;
#pragma unroll
      for (int i = 0; i < kTiledGroup; ++i) {
        float score = 0;
#pragma unroll
        for (int x = 0; x < kHeadDim; ++x) score += q[x] * k[first + i][x];
        scores[i] = key0 + first + i < p.keys ? score * p.scale * kLog2E : minus_infinity();
        top = fmaxf(top, scores[i]);
      }
      result.rescale(top);
#pragma unroll
      for (int i = 0; i < kTiledGroup; ++i) {
        const float weight = exp2_approx(scores[i] - top);
        result.sum += weight;
#pragma unroll
        for (int x = 0; x < kHeadDim; ++x) result.out[x] += weight * v[first + i][x];
      }
    }
  }
  if (row < p.queries) ladder_store<Config>(head.o + row * p.o_view.row, result);
}

}  // namespace vitune
