// templates/reference/attention_register_blocked.cuh -- Rung 3 of the ladder: a patch per thread.
//
// A CTA of 16 x 16 threads owns 64 query rows of one head. Thread (r, c) computes the scores of
// rows r + 16 i and keys c + 16 j, a patch of 4 x 2, and later columns c + 16 j of the same rows of
// the output: what it loads from shared memory serves a whole row or column of its patch.
#pragma once

#include "reference/ladder.cuh"

namespace vitune {

inline constexpr int kBlockedLanes = 16;
inline constexpr int kBlockedRows = 64, kBlockedKeys = 32;
inline constexpr int kPatchRows = kBlockedRows / kBlockedLanes;
inline constexpr int kPatchKeys = kBlockedKeys / kBlockedLanes;

// Rows first .. of a tensor, as they are; zeros past the last one.
template <int kRows, int kPitch, int kHeadDim>
__device__ inline void load_blocked(u32 (&tile)[kRows][kPitch], const u16* source, i64 stride,
                                    int first, int rows) {
  for (int i = threadIdx.x; i < kRows * kHeadDim / 2; i += kBlockedLanes * kBlockedLanes) {
    const int row = i / (kHeadDim / 2), x = i % (kHeadDim / 2);
    const bool valid = first + row < rows;
    tile[row][x] = valid ? reinterpret_cast<const u32*>(source + (first + row) * stride)[x] : 0u;
  }
}

// Maximum or sum over the 16 threads of a row.
__device__ __forceinline__ float lanes_max(float x) {
  for (int mask = kBlockedLanes / 2; mask > 0; mask /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
  }
  return x;
}
__device__ __forceinline__ float lanes_sum(float x) {
  for (int mask = kBlockedLanes / 2; mask > 0; mask /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, mask);
  }
  return x;
}

template <class Config>
__device__ inline void attention_register_blocked(const AttentionParams& p) {
  using E = Element<Config::kElement>;
  constexpr int kHeadDim = Config::kHeadDim, kPairs = kHeadDim / 2;
  constexpr int kColumns = ceil_div(kHeadDim, kBlockedLanes);
  // An odd pitch, so that 16 rows are in 16 banks.
  __shared__ u32 q[kBlockedRows][kPairs | 1], k[kBlockedKeys][kPairs | 1];
  __shared__ u32 v[kBlockedKeys][kPairs];
  __shared__ float weights[kBlockedRows][kBlockedKeys + 1];
  const LadderHead head = ladder_head(p, blockIdx.y);
  const int row0 = blockIdx.x * kBlockedRows;
  const int r = threadIdx.x / kBlockedLanes, c = threadIdx.x % kBlockedLanes;

  LadderRow<kColumns> result[kPatchRows];
  for (int i = 0; i < kPatchRows; ++i) result[i].clear();
  load_blocked<kBlockedRows, kPairs | 1, kHeadDim>(q, head.q, p.q_view.row, row0, p.queries);
  for (int key0 = 0; key0 < p.keys; key0 += kBlockedKeys) {
    __syncthreads();  // the tiles are still being read
    load_blocked<kBlockedKeys, kPairs | 1, kHeadDim>(k, head.k, p.k_view.row, key0, p.keys);
    load_blocked<kBlockedKeys, kPairs, kHeadDim>(v, head.v, p.v_view.row, key0, p.keys);
    __syncthreads();

    float scores[kPatchRows][kPatchKeys] = {};
#pragma unroll 8
    for (int x = 0; x < kPairs; ++x) {
      u32 rows[kPatchRows], keys[kPatchKeys];
      for (int i = 0; i < kPatchRows; ++i) rows[i] = q[r + kBlockedLanes * i][x];
      for (int j = 0; j < kPatchKeys; ++j) keys[j] = k[c + kBlockedLanes * j][x];
      for (int i = 0; i < kPatchRows; ++i) {
        for (int j = 0; j < kPatchKeys; ++j) {
          scores[i][j] += E::low(rows[i]) * E::low(keys[j]) + E::high(rows[i]) * E::high(keys[j]);
        }
      }
    }
    for (int i = 0; i < kPatchRows; ++i) {
      float top = minus_infinity(), sum = 0;
      for (int j = 0; j < kPatchKeys; ++j) {
        const bool valid = key0 + c + kBlockedLanes * j < p.keys;
        scores[i][j] = valid ? scores[i][j] * p.scale * kLog2E : minus_infinity();
        top = fmaxf(top, scores[i][j]);
      }
      result[i].rescale(fmaxf(result[i].maximum, lanes_max(top)));
      for (int j = 0; j < kPatchKeys; ++j) {
        const float weight = exp2_approx(scores[i][j] - result[i].maximum);
        weights[r + kBlockedLanes * i][c + kBlockedLanes * j] = weight;
        sum += weight;
      }
      result[i].sum += lanes_sum(sum);
    }
    __syncwarp();  // a row's weights are written and read by one warp
    for (int key = 0; key < kBlockedKeys; ++key) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int x = min_of(c + kBlockedLanes * j, kHeadDim - 1);
        const u32 pair = v[key][x / 2];
        const float value = x % 2 == 0 ? E::low(pair) : E::high(pair);
        for (int i = 0; i < kPatchRows; ++i) {
          result[i].out[j] += weights[r + kBlockedLanes * i][key] * value;
        }
      }
    }
  }
  for (int i = 0; i < kPatchRows; ++i) {
    const int row = row0 + r + kBlockedLanes * i;
    for (int j = 0; j < kColumns; ++j) {
      const int x = c + kBlockedLanes * j;
      if (row >= p.queries || x >= kHeadDim) continue;
      head.o[row * p.o_view.row + x] = u16(E::pack(result[i].out[j] / result[i].sum, 0));
    }
  }
}

}  // namespace vitune
