// templates/attention/softmax.cuh -- Online softmax in base 2 over the rows of one warp.
//
// Scores s arrive in any unit u such that the exponent of e is u * s; with sc = u * log2(e) the
// weight of a key is 2^(sc * (s - m)), one FMA and one ex2. m is the running maximum of the row in
// score units, l the sum of the fp32 weights of this thread's keys: it is reduced over the four
// threads of a row only at the end (Milakov and Gimelshein 2018, FlashAttention-2).
//
// With kHoldsReference m is the maximum of the row's first step and stays: the weights of later
// steps need no maximum, and nothing is rescaled. Weights may be above 1 then, in a format with the
// exponents of fp32; where they outgrow those, the rows are computed again (overflow_fallback.cuh).
// The weight of the largest score is not 1, so l sums up the weights as they are rounded: a row
// that is all but one key has that key's value.
#pragma once

#include "attention/config.cuh"
#include "primitives/math.cuh"

namespace vitune {

// Maximum or sum over the four threads that share a row.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <class T>
struct OnlineSoftmax {
  float maximum[T::kRowTiles][2];
  float sum[T::kRowTiles][2];
  float reference[T::kRowTiles][2];  // maximum, or 0 for a row without any key so far
  float unit;                        // u above
  float scale;                       // sc above
  bool extreme;  // some row's maximum is so large or low that its product with scale is coarse
  bool held;     // kHoldsReference: there is a reference

  __device__ __forceinline__ void init(float score_unit) {
    unit = score_unit;
    scale = score_unit * kLog2E;
    extreme = false;
    held = false;
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maximum[r][half] = minus_infinity();
        sum[r][half] = 0.f;
      }
    }
  }

  // Takes in the scores of one step, the first kTiles tiles of s. Whether what was summed up so far
  // has to be multiplied: by `rescale` (kFirst: nothing was, and it is left alone).
  template <int kTiles, bool kFirst, int kMaxTiles>
  __device__ __forceinline__ bool update(const float (&s)[T::kRowTiles][kMaxTiles][4],
                                         float (&rescale)[T::kRowTiles][2]) {
    if constexpr (T::kHoldsReference) {
      if (!kFirst && held) return false;
      held = true;
    }
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = fmaxf(s[r][0][2 * half], s[r][0][2 * half + 1]);
#pragma unroll
        for (int j = 1; j < kTiles; ++j) {
          top = fmaxf(top, fmaxf(s[r][j][2 * half], s[r][j][2 * half + 1]));
        }
        const float old = maximum[r][half];
        const float now = kFirst ? quad_max(top) : fmaxf(old, quad_max(top));
        maximum[r][half] = now;
        reference[r][half] = T::kMayBeEmpty && now == minus_infinity() ? 0.f : now;
        if constexpr (!kFirst) {
          rescale[r][half] = exp2_approx((old - reference[r][half]) * scale);
          sum[r][half] *= rescale[r][half];
        }
      }
    }
    if constexpr (T::kBias != 0) note_extremes();
    return !kFirst;
  }

  // The weight of score s in row half `half` of row tile r.
  template <bool kExtreme>
  __device__ __forceinline__ float weight(float s, int r, int half) const {
    return exp2_approx(kExtreme ? (s - reference[r][half]) * scale
                                : __fmaf_rn(s, scale, -reference[r][half] * scale));
  }
  // Those of two scores, rounded to E's 16 bits and added to the row's sum.
  template <bool kExtreme, class E>
  __device__ __forceinline__ u32 weigh(float s, float t, int r, int half) {
    const float x = weight<kExtreme>(s, r, half), y = weight<kExtreme>(t, r, half);
    const u32 pair = E::pack(x, y);
    sum[r][half] += T::kHoldsReference ? E::low(pair) : x;
    sum[r][half] += T::kHoldsReference ? E::high(pair) : y;
    return pair;
  }

  // Takes in what another warp made of other keys of the same rows: its maximum and its sum of the
  // weights relative to that. Outputs are to be multiplied: this warp's by `mine`, its by `theirs`.
  __device__ __forceinline__ void merge(int r, int half, float other_maximum, float other_sum,
                                        float& mine, float& theirs) {
    const float now = fmaxf(maximum[r][half], other_maximum);
    const float against = T::kMayBeEmpty && now == minus_infinity() ? 0.f : now;
    mine = exp2_approx((maximum[r][half] - against) * scale);
    theirs = exp2_approx((other_maximum - against) * scale);
    sum[r][half] = sum[r][half] * mine + other_sum * theirs;
    maximum[r][half] = now;
    reference[r][half] = against;
  }

  // After the last step: 1 / sum of each row (0 for a row without keys), and its log-sum-exp.
  __device__ __forceinline__ float finalize(int r, int half, float& lse) {
    const float total = quad_sum(sum[r][half]);
    const bool empty = T::kMayBeEmpty && total == 0.f;
    lse = empty ? minus_infinity() : __fmaf_rn(log2_approx(total), kLn2, reference[r][half] * unit);
    return empty ? 0.f : __fdividef(1.f, total);
  }

 private:
  // A bias of -1e9 or of the most negative finite number is a common way to say "masked". Its
  // product with scale is rounded by many powers of two, or overflows, so steps with such a row
  // take the difference first; the branch is uniform in the warp. Up to kCoarse a weight is off by
  // 6e-5 of itself at most.
  static constexpr float kCoarse = 1024.f;
  __device__ __forceinline__ void note_extremes() {
    bool coarse = false;
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) coarse |= fabsf(reference[r][half]) > kCoarse;
    }
    extreme = __any_sync(0xffffffffu, coarse);
  }
};

}  // namespace vitune
