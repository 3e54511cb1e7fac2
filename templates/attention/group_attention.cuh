// templates/attention/group_attention.cuh -- The accumulators of a warpgroup's 64 rows, and the
// three parts of a step: scores, P, output.
//
// The same algorithm as warp_attention.cuh with wgmma: S = Q K' with both operands in shared
// memory, then O += P V with P, rounded to 16 bits, in registers. A warp's fragments are those of
// mma.sync, so bias, masks, softmax and epilogue are shared with that family. The main loops of
// forward_sm90*.cuh wait for tiles between the parts.
#pragma once

#include "attention/attention_rows.cuh"
#include "attention/config_sm90.cuh"
#include "attention/tile_scheduler.cuh"
#include "primitives/element.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// The row of a tile that holds key `row`: with a bias or mask keys are permuted as in scores.cuh,
// here by their rows in the tile. The last eight of an odd number of eights stay in order.
template <class T, int kRows>
__device__ __forceinline__ int place_of_key(int row) {
  if constexpr (!T::kPermuted) return row;
  if (row >= kRows / 16 * 16) return row;
  const int key = row & 15;
  const int index = 2 * (key >> 2) + (key & 1);
  const int parity = ((key >> 1) & 1) ^ (index >> 2);
  return (row & ~15) + 8 * parity + index;
}

// The rows of this thread's warp, of the 64 that its warpgroup has from `row0` on.
__device__ __forceinline__ RowPlace group_rows(int row0, const HeadPlace& head) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize % 4;
  return {row0 + 16 * warp, lane / 4, lane % 4, head.batch, head.head};
}

template <class T>
struct GroupAttention : AttentionRows<T> {
  using E = Element<T::kElement>;
  using typename AttentionRows<T>::Scores;
  using AttentionRows<T>::o;
  using AttentionRows<T>::softmax;
  template <int kWidth>
  using Weights = u32[ceil_div(kWidth, 16)][4];  // P as the register operand

  // Starts on new rows.
  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at) {
    this->begin_rows(p, at);
    // Elsewhere the first step overwrites it.
    if constexpr (!T::kResident && !T::kProducer) this->clear_output();
  }

  // S = Q K' for kWidth keys. Issues the products as one group; the caller waits for them.
  template <int kWidth>
  __device__ __forceinline__ void start_scores(Scores& s, u32 queries, u32 keys) {
    constexpr int kSplits = ceil_div(kWidth, T::kProductColumns);
    constexpr int kColumns = ceil_div(kWidth / 8, kSplits) * 8;
    constexpr int kBefore = (kSplits - 1) * kColumns;  // the last product has the other columns
    float* d = &s[0][0][0];
    const u64 a = descriptor_k_major<T::kSwizzle>(queries);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) d[i] = 0.f;  // overwritten; see primitives/wgmma.cuh
    wgmma_fence();
#pragma unroll
    for (int column = 0; column < kBefore; column += kColumns) {
      const u64 b = descriptor_k_major<T::kSwizzle>(keys + column * T::kSwizzle);
#pragma unroll
      for (int step = 0; step < T::kHeadSteps; ++step) {
        Wgmma<T::kElement, kColumns>::shared_a(
            reinterpret_cast<float(&)[kColumns / 2]>(d[column / 2]),
            descriptor_at(a, T::QueryTile::step_offset(step)),
            descriptor_at(b, T::KeyTile::step_offset(step)), step > 0);
      }
    }
    const u64 b = descriptor_k_major<T::kSwizzle>(keys + kBefore * T::kSwizzle);
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      Wgmma<T::kElement, kWidth - kBefore>::shared_a(
          reinterpret_cast<float(&)[(kWidth - kBefore) / 2]>(d[kBefore / 2]),
          descriptor_at(a, T::QueryTile::step_offset(step)),
          descriptor_at(b, T::KeyTile::step_offset(step)), step > 0);
    }
    wgmma_commit();
  }

  // P from the scores: bias (where it is read here), masks, running maximum, exponentials.
  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst>
  __device__ __forceinline__ void weigh(Weights<kWidth>& weights, Scores& s, int key0, int limit) {
    this->template weigh_step<kWidth, kTail, kDiagonal, kFirst>(s, key0, limit);
    if (T::kBias != 0 && softmax.extreme) {
      exponentiate<kWidth, true>(weights, s);
    } else {
      exponentiate<kWidth, false>(weights, s);
    }
  }

  // O += P V for kWidth keys. Issues the products as one group; the caller waits for them.
  template <int kWidth, bool kFirst>
  __device__ __forceinline__ void start_output(const Weights<kWidth>& weights, u32 values) {
    using Product = Wgmma<T::kElement, T::kHeadDim>;
    float(&d)[T::kHeadDim / 2] = reinterpret_cast<float(&)[T::kHeadDim / 2]>(o);
    const u64 b = descriptor_mn_major<T::kSwizzle>(values, T::ValueTile::kAtomBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < ceil_div(kWidth, 16); ++step) {
      Product::register_a(d, weights[step], descriptor_at(b, step * 16 * T::kSwizzle),
                          !kFirst || step > 0);
    }
    wgmma_commit();
  }

 private:
  // exp2 of the scores, in the layout of the register operand. Where the last step has eight keys
  // only, zeros stand for the other eight.
  template <int kWidth, bool kExtreme>
  __device__ __forceinline__ void exponentiate(Weights<kWidth>& weights, const Scores& s) {
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
