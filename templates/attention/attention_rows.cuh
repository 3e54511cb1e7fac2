// templates/attention/attention_rows.cuh -- What a warp keeps of its rows from step to step.
//
// Shared by warp_attention.cuh and group_attention.cuh, whose accumulators are laid out alike: the
// output so far, the running softmax, the rows' bias and mask, and what a step does with them
// between its two products.
#pragma once

#include "attention/scores.cuh"
#include "attention/softmax.cuh"

namespace vitune {

// The largest sum of a thread's weights relative to a row's first step. Tests set it low, so that
// rows are computed again that need not be.
#ifdef VITUNE_LARGEST_SUM
inline constexpr float kLargestSum = VITUNE_LARGEST_SUM;
#else
inline constexpr float kLargestSum = 0x1p120f;
#endif

template <class T>
struct AttentionRows {
  using Bias = BiasPair<T::kBias>;
  using Scores = float[T::kRowTiles][T::kBlockN / 8][4];
  // Else there is none, or copying warps bring it (bias_sm90.cuh).
  static constexpr bool kReadsBias = T::kBias != 0 && !T::kBiasTiles;

  OnlineSoftmax<T> softmax;
  ScoreRows<T, typename Bias::Value> bias_rows;
  ScoreRows<T, unsigned char> mask_rows;
  RowPlace place;
  float scale;
  float o[T::kRowTiles][T::kHeadTiles][4];

  // Starts on new rows; the output is left as it is.
  __device__ __forceinline__ void begin_rows(const AttentionParams& p, const RowPlace& at) {
    place = at;
    scale = p.scale;
    // A bias is in natural units, so scores are scaled before it is added; else the scale is folded
    // into the exponent.
    softmax.init(T::kBias != 0 ? 1.f : p.scale);
    if constexpr (kReadsBias) {
      bias_rows.init(p.bias, p.bias_view, p.by_bias_batches, place, p.queries);
    }
    if constexpr (T::kMask) {
      mask_rows.init(p.mask, p.mask_view, p.by_mask_batches, place, p.queries);
    }
  }

  __device__ __forceinline__ void clear_output() {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < T::kHeadTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[r][j][i] = 0.f;
      }
    }
  }

  // Starts to read the bias and mask of kWidth keys from key0 on, of which `limit` exist.
  template <int kWidth, bool kTail>
  __device__ __forceinline__ void fetch_operands(int key0, int limit) {
    if constexpr (kReadsBias) {
      // Windows often share one bias per head: what is in registers already need not be read again.
      const void* wanted = bias_rows.row[0][0];
      if (!T::kBiasInRegisters || __any_sync(0xffffffffu, wanted != bias_held)) {
        bias.template load<kWidth, kTail>(bias_rows, key0, limit, place.t);
      }
      bias_held = wanted;
    }
    if constexpr (T::kMask) mask.template load<kWidth, kTail>(mask_rows, key0, limit, place.t);
  }

  // Bias (if it is read here), masks and the running maximum: afterwards the scores are ready to be
  // weighed.
  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst>
  __device__ __forceinline__ void weigh_step(Scores& s, int key0, int limit) {
    if constexpr (kReadsBias) {
      bias.template settle<kWidth, kTail>(bias_rows, limit, place.t);
      bias.template add<kWidth>(s, scale);
    }
    if constexpr (T::kMask) {
      mask.template settle<kWidth, kTail>(mask_rows, limit, place.t);
      mask.template apply<kWidth>(s);
    }
    if constexpr (kTail || kDiagonal)
      mask_scores<T, kWidth, kTail, kDiagonal>(s, key0, limit, place);
    float rescale[T::kRowTiles][2];
    if (softmax.template update<kWidth / 8, kFirst>(s, rescale)) rescale_output(rescale);
  }

  __device__ __forceinline__ void rescale_output(const float (&factor)[T::kRowTiles][2]) {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < T::kHeadTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[r][j][i] *= factor[r][i / 2];
      }
    }
  }

  // After the last step: whether a weight outgrew fp32, or a product with one, so that this warp's
  // rows have to be computed again (overflow_fallback.cuh). Then an output is not finite, or a sum
  // so large that its reciprocal would not be right.
  __device__ __forceinline__ bool overflowed() const {
    if constexpr (!T::kHoldsReference) return false;
    float zeros[4] = {};
    bool large = false;
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4 * T::kHeadTiles; ++i) {
        zeros[i % 4] = __fmaf_rn(o[r][i / 4][i % 4], 0.f, zeros[i % 4]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) large |= !(softmax.sum[r][half] < kLargestSum);
    }
    large |= zeros[0] + zeros[1] + (zeros[2] + zeros[3]) != 0.f;
    return __any_sync(0xffffffffu, large);
  }

 private:
  BiasTile<T, kReadsBias ? T::kBlockN : 8> bias;
  MaskTile<T, T::kBlockN> mask;
  const void* bias_held = nullptr;  // where this thread's bias was read from
};

}  // namespace vitune
