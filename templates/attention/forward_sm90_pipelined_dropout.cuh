// templates/attention/forward_sm90_pipelined_dropout.cuh -- forward_sm90_pipelined.cuh with
// dropout: weights are summed as they are, and meet the values where they are kept.
#pragma once

#include "attention/dropout.cuh"
#include "attention/forward_sm90_pipelined.cuh"

namespace vitune {

template <class C>
struct GroupAttention<PipelinedTraits<WithDropout<C>>> : GroupAttention<PipelinedTraits<C>> {
  static_assert(C::kLse, "dropout goes with the log-sum-exp, for the backward pass");
  static_assert(C::kBias == 0 && !C::kMask, "dropout goes without a bias and a mask");
  static_assert(C::kSwapAbRows == 0, "the swap-AB tail knows no dropout");
  using Base = GroupAttention<PipelinedTraits<C>>;
  using typename Base::E;
  using typename Base::Scores;
  template <int kWidth>
  using Weights = typename Base::template Weights<kWidth>;
  DropoutCells cells;

  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at) {
    Base::begin(p, at);
    cells.begin(dropout_of(p), at.batch * p.heads + at.head);
  }

  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst>
  __device__ __forceinline__ void weigh(Weights<kWidth>& weights, Scores& s, int key0, int limit) {
    this->template weigh_step<kWidth, kTail, kDiagonal, kFirst>(s, key0, limit);
    float sums[2][2] = {};  // of a row's even and odd keys: one chain would be too long
    KeptRows<2> kept;
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      if (j % 4 == 0) kept.draw(cells, this->place.row0, key0 + 8 * j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = this->softmax.template weight<false>(s[0][j][2 * half], 0, half);
        const float y = this->softmax.template weight<false>(s[0][j][2 * half + 1], 0, half);
        sums[half][0] += x;
        sums[half][1] += y;
        weights[j / 2][2 * (j % 2) + half] = E::pack(x, y) & kept.pair(j % 4, half);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      this->softmax.sum[0][half] += sums[half][0] + sums[half][1];
    if constexpr (kWidth % 16 == 8) weights[kWidth / 16][2] = weights[kWidth / 16][3] = 0;
  }
};

template <class C>
struct Epilogue<PipelinedTraits<WithDropout<C>>> {
  using T = PipelinedTraits<C>;

  static __device__ __forceinline__ void store(const AttentionParams& p, const RowPlace& place,
                                               u32 staging,
                                               float (&o)[T::kRowTiles][T::kHeadTiles][4],
                                               OnlineSoftmax<T>& softmax) {
    const float scale = dropout_of(p).scale;
#pragma unroll
    for (int i = 0; i < T::kHeadTiles * 4; ++i) o[0][i / 4][i % 4] *= scale;
    Epilogue<T>::store(p, place, staging, o, softmax);
  }
};

template <class Config, class... Maps>
__device__ __forceinline__ void forward_with_dropout(const AttentionDropoutParams& p,
                                                     const Maps&... maps) {
  forward<WithDropout<Config>>(p.call, maps...);
}

}  // namespace vitune
