// templates/attention_backward/one_pass_dropout_sm90.cuh -- The family sm90_one_pass with dropout.
//
// As dropout_sm90.cuh has it for two passes; here each weight is drawn once.
#pragma once

#include "attention_backward/one_pass_sm90.cuh"
// After what it is made of.
#include "attention_backward/dropout_sm90.cuh"

namespace vitune {

// Some weights count, those of a head's cells that are kept.
class CountsKept {
 public:
  // The operator's parameters of a call with dropout.
  explicit __device__ __forceinline__ CountsKept(const AttentionBackwardParams& p)
      : dropout_(reinterpret_cast<const AttentionBackwardDropoutParams&>(p).dropout) {}
  // As CountsAll has them.
  __device__ __forceinline__ void begin_block(int head_index, int key0) {
    cells_.begin(dropout_, head_index);
    key0_ = key0;
  }
  template <int kWidth>
  __device__ __forceinline__ SomeKept<KeptKeys, kWidth> begin_step(int query0) const {
    SomeKept<KeptKeys, kWidth> step;
    step.scale = __float_as_uint(dropout_.scale);
#pragma unroll
    for (int i = 0; i < ceil_div(kWidth, 32); ++i) {
      step.kept[i].draw(cells_, key0_, query0 + 32 * i);
    }
    return step;
  }

 private:
  const AttentionDropout& dropout_;
  DropoutCells cells_;
  int key0_;
};

template <class Config>
__device__ __forceinline__ void attention_backward_one_pass_sm90_dropout(
    const AttentionBackwardDropoutParams& p, const AttentionBackwardOnePassMaps& maps) {
  one_pass<Config, CountsKept>(p.backward, maps);
}

}  // namespace vitune
