// templates/attention_backward/rows_sm90.cuh -- A warpgroup's 64 rows of a pass of the family sm90,
// whether they are queries or keys, and what a step does with its weights.
//
// Kinds of rows differ in what becomes of weights and their gradients (begin_step()): all count, or
// with dropout some (dropout_sm90.cuh). With a bias steps are others too (dq_bias_sm90.cuh,
// dkv_bias_sm90.cuh).
#pragma once

#include "attention_backward/products_sm90.cuh"
#include "attention_backward/shared_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/math.cuh"

namespace vitune {

// A step's weights all of which count.
struct AllKept {
  // Weight number `at` of a thread's, for the product with dO.
  __device__ __forceinline__ float weight(float weight, int) const { return weight; }
  // The gradient of its score over the weight.
  __device__ __forceinline__ float gradient(float dp, float delta, int) const { return dp - delta; }
};

template <class T>
struct GroupOfRows {
  using Pass = T;
  const BackwardShared<T>& shared;
  PipelineState<T::kStages>& at;
  float scale;                 // of the scores; without a bias, for exponents of two
  int row0;                    // of the warpgroup
  int before = -1;             // the slot of the step before, -1 for none
  StepFragments<T::kStep> ds;  // which products of the step before may still read

  __device__ __forceinline__ GroupOfRows(const BackwardShared<T>& memory,
                                         PipelineState<T::kStages>& state, float of_scores,
                                         int first)
      : shared(memory), at(state), scale(of_scores), row0(first) {
#pragma unroll
    for (auto& fragment : ds) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0;
  }
  // This thread's first row.
  __device__ __forceinline__ int row() const {
    return row0 + threadIdx.x / kWarpSize % 4 * 16 + threadIdx.x % kWarpSize / 4;
  }
  // What becomes of the weights of step number `number`; while its products are under way.
  template <int kWidth>
  __device__ __forceinline__ AllKept begin_step(int) const {
    return {};
  }
  // The products of the step before are done.
  __device__ __forceinline__ void release_before() {
    hold_fragments(ds);
    if (before >= 0) release_tile<1>(shared.empty(before));
  }
  __device__ __forceinline__ void end_step() {
    before = at.index;
    at.advance();
  }
};

// Four numbers of queries as threads read them: that of value `j` of a thread's eight of sixteen
// queries by two keys.
__device__ __forceinline__ float of_query(const uint4& four, int j) {
  return __uint_as_float(j < 4 ? (j % 2 == 0 ? four.x : four.y) : (j % 2 == 0 ? four.z : four.w));
}

// P' of the sixteen queries number `i` of a step, from S'; `lse` is theirs, for exponents of two.
// Values that seen(j) does not count are 0.
template <int kValues, class Seen>
__device__ __forceinline__ void weigh_queries(float (&s)[kValues], int i, const uint4& lse,
                                              float scale, Seen&& seen) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    float& weight = s[8 * i + j];
    weight = exp2_approx(__fmaf_rn(weight, scale, -of_query(lse, j)));
    if (!seen(j)) weight = 0.f;
  }
}

// dS' of the same, rounded, from P' and dP'.
template <class T, int kValues, class Kept>
__device__ __forceinline__ void differentiate_queries(u32 (&ds)[4], const float (&s)[kValues],
                                                      const float (&dp)[kValues], int i,
                                                      const uint4& deltas, const Kept& kept) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int pair = 8 * i + 2 * j;
    const float low = of_query(deltas, 2 * j), high = of_query(deltas, 2 * j + 1);
    ds[j] = Element<T::kElement>::pack(s[pair] * kept.gradient(dp[pair], low, pair),
                                       s[pair + 1] * kept.gradient(dp[pair + 1], high, pair + 1));
  }
}

}  // namespace vitune
