// templates/window_attention_backward/scores.cuh -- Scores of a warp's 16 query rows, softmax over
// them, and their gradients.
//
// Neither the result nor the log-sum-exp of forward is read: a row's softmax is made again, and
// delta is the row's sum of P o dP, which is what the sum of dO o out would be without rounding.
// Weights are relative to the row's largest score: far from 0 a log-sum-exp would have nothing left
// of what scores differ by.
#pragma once

#include "attention/softmax.cuh"
#include "attention_backward/products_sm80.cuh"
#include "window_attention_backward/config.cuh"

namespace vitune {

// A warp's query rows: operands, bias, place.
template <class T>
struct QueryRows {
  RowPlace place;
  Queries<T> queries, gradients;
  ScoreRows<T, typename BiasPair<T::kBias>::Value> bias;
  float scale;
  float unit;  // the exponent, in base 2, of a difference of scores

  __device__ __forceinline__ QueryRows(const AttentionParams& p, const RowPlace& at, u32 query_rows,
                                       u32 gradient_rows)
      : place(at), scale(p.scale), unit(T::kBias != 0 ? kLog2E : p.scale * kLog2E) {
    const int lane = 4 * at.g + at.t;
    queries.init(query_rows, lane);
    gradients.init(gradient_rows, lane);
    if constexpr (T::kBias != 0) bias.init(p.bias, p.bias_view, p.by_bias_batches, at, p.queries);
  }

  // s = Q K' of kWidth keys from key0 on, with a bias times the scale and the bias added; -inf for
  // those behind the last key, which kEdge looks for. ds = dO V'.
  template <int kWidth, bool kEdge>
  __device__ __forceinline__ void multiply(ScoreTile<kWidth>& s, ScoreTile<kWidth>& ds, u32 keys,
                                           u32 values, const LaneOffsets<T>& lanes,
                                           int key0) const {
    const int limit = T::kWindowKeys - key0;
    BiasTile<T, T::kBias != 0 ? kWidth : 8> tile;
    if constexpr (T::kBias != 0) tile.template load<kWidth, kEdge>(bias, key0, limit, place.t);
    multiply_rows<T>(s, queries, KeyOperand<T, kWidth, false>(keys, lanes), lanes);
    multiply_rows<T>(ds, gradients, KeyOperand<T, kWidth, false>(values, lanes), lanes);
    if constexpr (T::kBias != 0) {
      tile.template settle<kWidth, kEdge>(bias, limit, place.t);
      tile.template add<kWidth>(s, scale);
    }
    if constexpr (kEdge) mask_scores<T, kWidth, true, false>(s, key0, limit, place);
  }
};

// Softmax of a thread's two rows, g and g + 8, and their delta.
struct RowWeights {
  float reference[2];  // the largest score; 0 for a row without keys
  float inverse[2];    // of the sum of weights; 0 for a row without keys
  float delta[2];

  // Scores become weights, the gradients of weights those of scores.
  template <int kWidth>
  __device__ __forceinline__ void weigh(ScoreTile<kWidth>& s, ScoreTile<kWidth>& ds,
                                        float unit) const {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[0][j][i] = exp2_approx((s[0][j][i] - reference[i / 2]) * unit);
      }
    }
    normalise<kWidth>(s, ds);
  }
  // The same from weights that are not yet divided by their sum.
  template <int kWidth>
  __device__ __forceinline__ void normalise(ScoreTile<kWidth>& s, ScoreTile<kWidth>& ds) const {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[0][j][i] *= inverse[i / 2];
        ds[0][j][i] = s[0][j][i] * (ds[0][j][i] - delta[i / 2]);
      }
    }
  }
};

// The same while keys come step by step: this thread's sums, relative to the largest so far.
struct OnlineWeights {
  float most[2], sum[2], product[2];

  __device__ __forceinline__ OnlineWeights() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = minus_infinity();
      sum[half] = product[half] = 0.f;
    }
  }
  // Takes in a step's scores, which become weights relative to the largest of now.
  template <int kWidth>
  __device__ __forceinline__ void add(ScoreTile<kWidth>& s, const ScoreTile<kWidth>& ds,
                                      float unit) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = most[half];
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        top = fmaxf(top, fmaxf(s[0][j][2 * half], s[0][j][2 * half + 1]));
      }
      top = quad_max(top);
      const float reference = reference_of(top);
      const float factor = exp2_approx((most[half] - reference) * unit);
      most[half] = top;
      sum[half] *= factor;
      product[half] *= factor;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[0][j][i] = exp2_approx((s[0][j][i] - reference) * unit);
          sum[half] += s[0][j][i];
          product[half] = __fmaf_rn(s[0][j][i], ds[0][j][i], product[half]);
        }
      }
    }
  }
  __device__ __forceinline__ RowWeights finish() const {
    RowWeights rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = quad_sum(sum[half]);
      rows.reference[half] = reference_of(most[half]);
      rows.inverse[half] = all > 0.f ? 1.f / all : 0.f;
      rows.delta[half] = quad_sum(product[half]) * rows.inverse[half];
    }
    return rows;
  }

 private:
  static __device__ __forceinline__ float reference_of(float top) {
    return top == minus_infinity() ? 0.f : top;
  }
};

}  // namespace vitune
