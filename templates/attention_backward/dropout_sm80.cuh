// templates/attention_backward/dropout_sm80.cuh -- Both passes of the family sm80 with dropout.
//
// With D, which is 0 or, where a weight is kept, the scale of those: dV = (P o D)' dO and
// dS = P o (D o dP - delta), where delta is as it is without dropout, for out has gone through it.
#pragma once

#include "attention/dropout.cuh"
#include "attention_backward/dkv_sm80.cuh"
#include "attention_backward/dq_sm80.cuh"
// After what it is made of.
#include "attention_backward/dropout_params.cuh"

namespace vitune {

template <template <class> class Pass, class C>
struct RowStatistics<Pass<WithDropout<C>>> : RowStatistics<Pass<C>> {};

// Of AttentionBackwardDropoutParams, by the part that operands are handed.
__device__ __forceinline__ const AttentionDropout& backward_dropout_of(const AttentionParams& p) {
  return reinterpret_cast<const AttentionBackwardDropoutParams&>(p).dropout;
}

template <template <class> class Pass, class C, int kWidth>
struct ScoreOperands<Pass<WithDropout<C>>, kWidth> : ScoreOperands<Pass<C>, kWidth> {
  static_assert(C::kBias == 0 && !C::kMask, "dropout goes without a bias and a mask");
  static_assert(kWidth == 16 || kWidth == 32, "cells of scores have sixteen keys");
  using Base = ScoreOperands<Pass<C>, kWidth>;
  DropoutCells cells;
  float kept_scale;

  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at) {
    Base::begin(p, at);
    cells.begin(backward_dropout_of(p), at.batch * p.heads + at.head);
    kept_scale = backward_dropout_of(p).scale;
  }

  template <bool kEdge>
  __device__ __forceinline__ void weigh(ScoreTile<kWidth>& s, ScoreTile<kWidth>& ds,
                                        const RowStatistics<Pass<C>>& rows, float scale, int key0,
                                        int limit) {
    KeptRows<kWidth / 16> kept;
    kept.draw(cells, this->place.row0, key0);
    drop(ds, kept);
    Base::template weigh<kEdge>(s, ds, rows, scale, key0, limit);
    drop(s, kept);
  }

 private:
  __device__ __forceinline__ void drop(ScoreTile<kWidth>& values,
                                       const KeptRows<kWidth / 16>& kept) const {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32 factor = __float_as_uint(kept_scale) & kept.value(j, i);
        values[0][j][i] *= __uint_as_float(factor);
      }
    }
  }
};

template <class C>
__device__ void attention_backward_dq_dropout(const AttentionBackwardDropoutParams& p) {
  attention_backward_dq<WithDropout<C>>(p.backward);
}
template <class C>
__device__ void attention_backward_dkv_dropout(const AttentionBackwardDropoutParams& p) {
  attention_backward_dkv<WithDropout<C>>(p.backward);
}

}  // namespace vitune
