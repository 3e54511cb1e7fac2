// templates/attention/group_attention.cuh -- One warpgroup's 64 rows against one step of keys.
//
// The same algorithm as warp_attention.cuh with wgmma: scores of all keys of the step come from one
// batch of products, with Q and K in shared memory; the weights, rounded to 16 bits, are the
// register operand of the second batch. A warp's fragments are those of mma.sync, so bias, masks,
// softmax and epilogue are shared with that family.
#pragma once

#include "attention/attention_rows.cuh"
#include "attention/config_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Place in its tile of key `row`: with a bias or mask keys are dealt out as in scores.cuh, here by
// where their rows lie. The last eight of an odd number of eights stay in order.
template <class T, int kRows>
__device__ __forceinline__ int place_of_key(int row) {
  if constexpr (!T::kPermuted) return row;
  if (row >= kRows / 16 * 16) return row;
  const int key = row & 15;
  const int index = 2 * (key >> 2) + (key & 1);
  const int parity = ((key >> 1) & 1) ^ (index >> 2);
  return (row & ~15) + 8 * parity + index;
}

// Tiles that are there and stay.
struct NoWaits {
  static constexpr bool kValuesFirst = false;
  __device__ __forceinline__ void keys_wanted() {}
  __device__ __forceinline__ void keys_read() {}
  __device__ __forceinline__ void values_wanted() {}
  __device__ __forceinline__ void values_read() {}
};

template <class T>
struct GroupAttention : AttentionRows<T> {
  using E = Element<T::kElement>;
  using typename AttentionRows<T>::Scores;
  using AttentionRows<T>::o;
  using AttentionRows<T>::softmax;
  template <int kWidth>
  using Weights = u32[ceil_div(kWidth, 16)][4];  // A operands

  // Starts on new rows.
  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at) {
    this->begin_rows(p, at);
    // Elsewhere the first step overwrites it.
    if constexpr (!T::kResident && !T::kProducer) this->clear_output();
  }

  // One step over kWidth keys from key0 on, of which `limit` exist; `queries` is the group's query
  // tile, `row` the step's first row in the tiles `keys` and `values`. `tiles` is told when a tile
  // is wanted and when it has been read (see NoWaits).
  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst, class Tiles>
  __device__ __forceinline__ void attend(u32 queries, u32 keys, u32 values, int row, int key0,
                                         int limit, Tiles& tiles) {
    Scores s;
    this->template fetch_operands<kWidth, kTail>(key0, limit);
    tiles.keys_wanted();
    start_scores<kWidth>(s, queries, keys + row * T::kSwizzle);
    wgmma_wait<0>();
    tiles.keys_read();
    // ptxas moves half of the weights' arithmetic across a wait behind them. Where enough warps are
    // at work for that to matter the values can be waited for here.
    if constexpr (Tiles::kValuesFirst) tiles.values_wanted();
    if constexpr (T::kBiasTiles) tiles.template add_bias<kWidth>(s, this->scale, key0);
    this->template weigh_step<kWidth, kTail, kDiagonal, kFirst>(s, key0, limit);
    Weights<kWidth> weights;
    if (T::kBias != 0 && softmax.extreme) {
      weigh<kWidth, true>(weights, s);
    } else {
      weigh<kWidth, false>(weights, s);
    }
    if constexpr (!Tiles::kValuesFirst) tiles.values_wanted();
    start_output<kWidth, kFirst>(weights, values + row * T::kSwizzle);
    wgmma_wait<0>();
    tiles.values_read();
  }

 private:
  // Products run until waited for.
  template <int kWidth>
  __device__ __forceinline__ void start_scores(Scores& s, u32 queries, u32 keys) {
    constexpr int kParts = ceil_div(kWidth, T::kProductColumns);
    constexpr int kPart = ceil_div(kWidth / 8, kParts) * 8;
    float* d = &s[0][0][0];
    const u64 a = descriptor_along_rows<T::kSwizzle>(queries);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) d[i] = 0.f;  // overwritten; see primitives/wgmma.cuh
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kParts - 1; ++part) {
      multiply<kPart>(d + part * kPart / 2, a, keys + part * kPart * T::kSwizzle);
    }
    constexpr int kBefore = (kParts - 1) * kPart;
    multiply<kWidth - kBefore>(d + kBefore / 2, a, keys + kBefore * T::kSwizzle);
    wgmma_commit();
  }
  template <int kColumns>
  __device__ __forceinline__ void multiply(float* d, u64 a, u32 keys) {
    using Product = Wgmma<T::kElement, kColumns>;
    const u64 b = descriptor_along_rows<T::kSwizzle>(keys);
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      Product::shared_a(reinterpret_cast<float(&)[kColumns / 2]>(*d),
                        descriptor_at(a, T::QueryTile::step_offset(step)),
                        descriptor_at(b, T::KeyTile::step_offset(step)), step > 0);
    }
  }
  template <int kWidth, bool kFirst>
  __device__ __forceinline__ void start_output(const Weights<kWidth>& weights, u32 values) {
    using Product = Wgmma<T::kElement, T::kHeadDim>;
    float(&d)[T::kHeadDim / 2] = reinterpret_cast<float(&)[T::kHeadDim / 2]>(o);
    const u64 b = descriptor_across_rows<T::kSwizzle>(values, T::ValueTile::kPanelBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < ceil_div(kWidth, 16); ++step) {
      Product::register_a(d, weights[step], descriptor_at(b, step * 16 * T::kSwizzle),
                          !kFirst || step > 0);
    }
    wgmma_commit();
  }

  // The weights as A operands; the second half of a lone last eight is zero.
  template <int kWidth, bool kExtreme>
  __device__ __forceinline__ void weigh(Weights<kWidth>& weights, const Scores& s) {
    float sums[2][2] = {};  // of a row's even and odd keys: one chain would be too long
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = softmax.template weight<kExtreme>(s[0][j][2 * half], 0, half);
        const float y = softmax.template weight<kExtreme>(s[0][j][2 * half + 1], 0, half);
        const u32 pair = E::pack(x, y);
        sums[half][0] += T::kHoldsReference ? E::low(pair) : x;
        sums[half][1] += T::kHoldsReference ? E::high(pair) : y;
        weights[j / 2][2 * (j % 2) + half] = pair;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) softmax.sum[0][half] += sums[half][0] + sums[half][1];
    if constexpr (kWidth % 16 == 8) weights[kWidth / 16][2] = weights[kWidth / 16][3] = 0;
  }
};

}  // namespace vitune
