// templates/attention/forward_sm80_dropout.cuh -- forward_sm80.cuh with dropout: weights are summed
// as they are, and meet the values where they are kept.
#pragma once

#include "attention/dropout.cuh"
#include "attention/forward_sm80.cuh"

namespace vitune {

// A Config whose softmax drops weights; it has to be told where it is.
template <class C>
struct DroppedWeights : C {
  static_assert(C::kLse, "dropout goes with the log-sum-exp, for the backward pass");
  static_assert(C::kBias == 0 && !C::kMask, "dropout goes without a bias and a mask");
  static_assert(C::kBlockN % 16 == 0 || KeyTiles<C>::kCount == 1,
                "with dropout several steps of keys must be multiples of 16");
};

template <class C>
struct OnlineSoftmax<Traits<DroppedWeights<C>>> : OnlineSoftmax<Traits<C>> {
  using Base = OnlineSoftmax<Traits<C>>;
  DropoutCells cells;
  int row0, key0;
  KeptRows<2> kept[C::kRowTiles];
  int tiles[C::kRowTiles];  // of the step that are weighed; a constant once loops are unrolled

  __device__ __forceinline__ void begin_rows(const AttentionParams& p, const RowPlace& at) {
    row0 = at.row0;
    cells.begin(dropout_of(p), at.batch * p.heads + at.head);
  }
  __device__ __forceinline__ void begin_step(int key) {
    key0 = key;
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r) tiles[r] = 0;
  }
  // Called tile by tile, the first half of each before the second.
  template <bool kExtreme, class E>
  __device__ __forceinline__ u32 weigh(float s, float t, int r, int half) {
    const int tile = tiles[r];
    tiles[r] += half;
    if (tile % 4 == 0 && half == 0) kept[r].draw(cells, row0 + 16 * r, key0 + 8 * tile);
    return Base::template weigh<kExtreme, E>(s, t, r, half) & kept[r].pair(tile % 4, half);
  }
};

template <class C>
struct WarpAttention<Traits<WithDropout<C>>> : WarpAttention<Traits<DroppedWeights<C>>> {
  using Base = WarpAttention<Traits<DroppedWeights<C>>>;
  using Base::Base;

  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at,
                                        u32 query_rows) {
    Base::begin(p, at, query_rows);
    this->softmax.begin_rows(p, at);
  }
  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst, class Between>
  __device__ __forceinline__ void attend(u32 keys, u32 values, int key0, int limit,
                                         Between&& between) {
    this->softmax.begin_step(key0);
    Base::template attend<kWidth, kTail, kDiagonal, kFirst>(keys, values, key0, limit, between);
  }
};

template <class C>
struct Epilogue<Traits<WithDropout<C>>> {
  using T = Traits<DroppedWeights<C>>;

  static __device__ __forceinline__ void store(const AttentionParams& p, const RowPlace& place,
                                               u32 staging,
                                               float (&o)[T::kRowTiles][T::kHeadTiles][4],
                                               OnlineSoftmax<T>& softmax) {
    const float scale = dropout_of(p).scale;
#pragma unroll
    for (int i = 0; i < T::kRowTiles * T::kHeadTiles * 4; ++i) {
      o[i / 4 / T::kHeadTiles][i / 4 % T::kHeadTiles][i % 4] *= scale;
    }
    Epilogue<T>::store(p, place, staging, o, softmax);
  }
};

template <class Config>
__device__ __forceinline__ void forward_with_dropout(const AttentionDropoutParams& p) {
  forward<WithDropout<Config>>(p.call);
}

}  // namespace vitune
