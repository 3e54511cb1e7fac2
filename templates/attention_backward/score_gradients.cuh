// templates/attention_backward/score_gradients.cuh -- From Q K' and dO V' of a warp's 16 query rows
// to the weights and the gradients of scores.
//
// A weight is exp(score - lse). Without a bias that is one FMA and one ex2 in base 2. With a bias
// the difference is taken first, in natural units: far from 0 the products with log2(e) would have
// nothing left of it.
#pragma once

#include "attention/scores.cuh"
#include "attention_backward/config.cuh"
#include "primitives/math.cuh"

namespace vitune {

// A thread's two rows, g and g + 8.
template <class T>
struct RowStatistics {
  float lse[2];  // in base 2 without a bias; +inf for a row without keys, or past the end
  float delta[2];

  __device__ __forceinline__ void set(int half, float log_sum, float sum, bool is_there) {
    const bool is_empty = log_sum == minus_infinity() || !is_there;
    lse[half] = is_empty ? -minus_infinity() : log_sum * (T::kBias != 0 ? 1.f : kLog2E);
    delta[half] = sum;
  }
};

// The scores of 16 rows and kWidth keys in a warp.
template <int kWidth>
using ScoreTile = float[1][kWidth / 8][4];

// Bias and mask of such a tile: fetched before its products, whose time hides the latency.
template <class T, int kWidth>
struct ScoreOperands {
  ScoreRows<T, typename BiasPair<T::kBias>::Value> bias_rows;
  ScoreRows<T, unsigned char> mask_rows;
  RowPlace place;

  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at) {
    place = at;
    if constexpr (T::kBias != 0) {
      bias_rows.init(p.bias, p.bias_view, p.by_bias_batches, place, p.queries);
    }
    if constexpr (T::kMask) {
      mask_rows.init(p.mask, p.mask_view, p.by_mask_batches, place, p.queries);
    }
  }

  // Of the keys from key0 on, `limit` of them; without kEdge those are kWidth or more.
  template <bool kEdge>
  __device__ __forceinline__ void fetch(int key0, int limit) {
    if constexpr (T::kBias != 0) {
      bias.template load<kWidth, kEdge>(bias_rows, key0, limit, place.t);
    }
    if constexpr (T::kMask) {
      mask.template load<kWidth, kEdge>(mask_rows, key0, limit, place.t);
    }
  }

  // Products of Q and K become weights, those of dO and V gradients of scores. Without kEdge all
  // rows see all keys, but for the mask.
  template <bool kEdge>
  __device__ __forceinline__ void weigh(ScoreTile<kWidth>& s, ScoreTile<kWidth>& ds,
                                        const RowStatistics<T>& rows, float scale, int key0,
                                        int limit) {
    if constexpr (T::kBias != 0) {
      bias.template settle<kWidth, kEdge>(bias_rows, limit, place.t);
      bias.template add<kWidth>(s, scale);
    }
    if constexpr (T::kMask) {
      mask.template settle<kWidth, kEdge>(mask_rows, limit, place.t);
      mask.template apply<kWidth>(s);
    }
    if constexpr (kEdge) mask_scores<T, kWidth, true, T::kCausal>(s, key0, limit, place);
    const float scale_log2 = scale * kLog2E;
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float lse = rows.lse[i / 2];
        const float exponent =
            T::kBias != 0 ? (s[0][j][i] - lse) * kLog2E : __fmaf_rn(s[0][j][i], scale_log2, -lse);
        s[0][j][i] = exp2_approx(exponent);
        ds[0][j][i] = s[0][j][i] * (ds[0][j][i] - rows.delta[i / 2]);
      }
    }
  }

 private:
  BiasTile<T, T::kBias != 0 ? kWidth : 8> bias;
  MaskTile<T, kWidth> mask;
};

// True if some of the kWidth keys from key0 on are past the end, or behind some row from row0 on.
template <class T, int kWidth>
__device__ __forceinline__ bool is_edge(const AttentionParams& p, int row0, int key0) {
  return key0 + kWidth > p.keys || (T::kCausal && key0 + kWidth > row0 + 1);
}

}  // namespace vitune
