// templates/reference/attention_tensor_core.cuh -- Rung 4 of the ladder: products by mma.sync.
//
// A CTA of four warps owns 64 query rows of one head, 16 per warp. It loads 64 keys and values,
// waits, multiplies, and only then loads the next ones: nothing overlaps. Weights go from the
// accumulators of the first product to the operand of the second without leaving the registers.
#pragma once

#include "reference/mma_tiles.cuh"

namespace vitune {

template <class Config>
__device__ inline void attention_tensor_core(const AttentionParams& p) {
  using E = Element<Config::kElement>;
  using S = MmaShape<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const u32 k = shared_address(shared_memory), v = k + S::kTileBytes;
  const LadderHead head = ladder_head(p, blockIdx.y);
  const int row0 = blockIdx.x * kMmaRows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;

  // The queries pass through the keys' place, once.
  u32 q[S::kSteps][4];
  load_mma<Config>(k, head.q, p.q_view.row, row0, p.queries);
  wait_for_tiles();
  for (int s = 0; s < S::kSteps; ++s) {
    ldmatrix_x4(q[s], k + (16 * warp + lane % 16) * S::kPitch + (2 * s + lane / 16) * 16);
  }
  float out[2 * S::kSteps][4] = {}, maximum[2], sum[2] = {};
  maximum[0] = maximum[1] = minus_infinity();
  for (int key0 = 0; key0 < p.keys; key0 += kMmaKeys) {
    __syncthreads();  // the tiles are still being read
    load_mma<Config>(k, head.k, p.k_view.row, key0, p.keys);
    load_mma<Config>(v, head.v, p.v_view.row, key0, p.keys);
    wait_for_tiles();

    float scores[kMmaKeys / 8][4] = {};
#pragma unroll
    for (int n = 0; n < kMmaKeys / 16; ++n) {
#pragma unroll
      for (int s = 0; s < S::kSteps; ++s) {
        u32 b[4];
        const int key = 16 * n + lane / 16 * 8 + lane % 8;
        ldmatrix_x4(b, k + key * S::kPitch + (2 * s + lane / 8 % 2) * 16);
        E::mma(scores[2 * n], q[s], b[0], b[1]);
        E::mma(scores[2 * n + 1], q[s], b[2], b[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // rows g and g + 8
      float top = maximum[i], part = 0;
#pragma unroll
      for (int j = 0; j < kMmaKeys / 4; ++j) {
        float& score = scores[j / 2][2 * i + j % 2];
        const bool valid = key0 + j / 2 * 8 + 2 * t + j % 2 < p.keys;
        score = valid ? score * p.scale * kLog2E : minus_infinity();
        top = fmaxf(top, score);
      }
      top = quad_max(top);
      const float factor = exp2_approx(maximum[i] - top);
      maximum[i] = top;
#pragma unroll
      for (int j = 0; j < kMmaKeys / 4; ++j) {
        float& score = scores[j / 2][2 * i + j % 2];
        score = exp2_approx(score - top);
        part += score;
      }
      sum[i] = sum[i] * factor + quad_sum(part);
#pragma unroll
      for (int j = 0; j < 4 * S::kSteps; ++j) out[j / 2][2 * i + j % 2] *= factor;
    }
#pragma unroll
    for (int n = 0; n < kMmaKeys / 16; ++n) {
      const float(&low)[4] = scores[2 * n], (&high)[4] = scores[2 * n + 1];
      const u32 a[4] = {E::pack(low[0], low[1]), E::pack(low[2], low[3]), E::pack(high[0], high[1]),
                        E::pack(high[2], high[3])};
#pragma unroll
      for (int s = 0; s < S::kSteps; ++s) {
        u32 b[4];
        ldmatrix_x4_trans(b, v + (16 * n + lane % 16) * S::kPitch + (2 * s + lane / 16) * 16);
        E::mma(out[2 * s], a, b[0], b[1]);
        E::mma(out[2 * s + 1], a, b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < Config::kHeadDim / 8; ++j) {
    for (int i = 0; i < 2; ++i) {
      const int row = row0 + 16 * warp + g + 8 * i;
      if (row >= p.queries) continue;
      *reinterpret_cast<u32*>(head.o + row * p.o_view.row + 8 * j + 2 * t) =
          E::pack(out[j][2 * i] / sum[i], out[j][2 * i + 1] / sum[i]);
    }
  }
}

}  // namespace vitune
