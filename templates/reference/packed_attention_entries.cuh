// templates/reference/packed_attention_entries.cuh -- The judge of packed attention, its yardstick.
//
// A thread has one query of one head: it looks for the query's sequence, for the largest score,
// then adds up weights and weighted values. With double it is the judge; with float the yardstick:
// fp32 scores and sums, weights rounded to 16 bits before they meet v, a result rounded to 16 bits.
// Offsets are read as they are: judged inputs have right ones.
#pragma once

#include "attention/params.cuh"
#include "packed_attention/params.cuh"
#include "reference/numbers.cuh"
// After what it is made of.
#include "reference/packed_attention_judge_params.cuh"

namespace vitune {

inline constexpr int kPackedMaxHead = 128;

__device__ inline double packed_exp(double x) { return exp(x); }
__device__ inline float packed_exp(float x) { return expf(x); }
__device__ inline double packed_log(double x) { return log(x); }
__device__ inline float packed_log(float x) { return logf(x); }
__device__ inline double packed_weight(double weight, int) { return weight; }
__device__ inline float packed_weight(float weight, int element) {
  return value16(bits16(weight, element), element);
}

// A query, and the keys that it sees.
struct PackedQuery {
  long long token, first_key;
  int head, keys;
};

// The keys that the query's row attends to; none if no sequence has the row.
__device__ inline PackedQuery packed_query(const PackedAttentionJudgeParams& p, long long token,
                                           int head) {
  const int* const offsets_q = p.call.offsets_q;
  const int* const offsets_k = p.call.offsets_k == nullptr ? offsets_q : p.call.offsets_k;
  for (int i = 0; i < p.call.sequences; ++i) {
    if (token < offsets_q[i] || token >= offsets_q[i + 1]) continue;
    const int row = int(token) - offsets_q[i], rows = offsets_q[i + 1] - offsets_q[i];
    const int keys = offsets_k[i + 1] - offsets_k[i];
    const int seen = p.causal != 0 ? row + 1 + keys - rows : keys;
    return {token, offsets_k[i], head, seen < 0 ? 0 : seen};
  }
  return {token, 0, head, 0};
}

template <class Scalar>
__device__ inline Scalar packed_element(const PackedAttentionJudgeParams& p, const void* data,
                                        const AttentionView& view, long long token, int head,
                                        int at) {
  const long long place = token * view.row + head * view.head + at;
  return Scalar(value16(static_cast<const RefU16*>(data)[place], p.element));
}

template <class Scalar>
__device__ inline Scalar packed_score(const PackedAttentionJudgeParams& p, const PackedQuery& query,
                                      int key) {
  const AttentionParams& call = p.call.call;
  const int kv_head = query.head / call.heads_per_kv;
  Scalar sum = 0;
  for (int i = 0; i < p.head_size; ++i) {
    sum += packed_element<Scalar>(p, call.q, call.q_view, query.token, query.head, i) *
           packed_element<Scalar>(p, call.k, call.k_view, query.first_key + key, kv_head, i);
  }
  return sum * Scalar(p.scale);
}

__device__ inline void packed_write(const PackedAttentionJudgeParams& p, const PackedQuery& query,
                                    int at, double value) {
  const long long row = query.token * p.call.call.heads + query.head;
  p.out[row * p.head_size + at] = float(value);
}
__device__ inline void packed_write(const PackedAttentionJudgeParams& p, const PackedQuery& query,
                                    int at, float value) {
  const AttentionView& view = p.call.call.o_view;
  static_cast<RefU16*>(p.call.call.o)[query.token * view.row + query.head * view.head + at] =
      bits16(value, p.element);
}

__device__ inline float* packed_lse(const PackedAttentionJudgeParams& p, double) { return p.lse; }
__device__ inline float* packed_lse(const PackedAttentionJudgeParams& p, float) {
  return p.call.call.lse;
}

template <class Scalar>
__device__ inline void packed_row(const PackedAttentionJudgeParams& p, const PackedQuery& query) {
  const AttentionParams& call = p.call.call;
  const int kv_head = query.head / call.heads_per_kv;
  Scalar most = Scalar(reference_minus_infinity()), sum = 0;
  for (int key = 0; key < query.keys; ++key) {
    const Scalar score = packed_score<Scalar>(p, query, key);
    if (!(score <= most)) most = score;  // a NaN stays
  }
  Scalar values[kPackedMaxHead];
  for (int i = 0; i < p.head_size; ++i) values[i] = 0;
  for (int key = 0; key < query.keys; ++key) {
    const Scalar weight = packed_exp(packed_score<Scalar>(p, query, key) - most);
    const Scalar rounded = packed_weight(weight, p.element);
    sum += weight;
    for (int i = 0; i < p.head_size; ++i) {
      values[i] += rounded * packed_element<Scalar>(p, call.v, call.v_view, query.first_key + key,
                                                    kv_head, i);
    }
  }
  for (int i = 0; i < p.head_size; ++i) {
    packed_write(p, query, i, query.keys == 0 ? Scalar(0) : values[i] / sum);
  }
  float* const lse = packed_lse(p, Scalar(0));
  if (lse == nullptr) return;
  lse[(long long)(query.head) * call.queries + query.token] =
      query.keys == 0 ? reference_minus_infinity() : float(most + packed_log(sum));
}

template <class Scalar>
__device__ inline void packed_reference(const PackedAttentionJudgeParams& p) {
  const int heads = p.call.call.heads;
  const RefU64 all = RefU64(p.call.call.queries) * heads;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    packed_row<Scalar>(p, packed_query(p, (long long)(i / heads), int(i % heads)));
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(128) vitune_packed_attention_reference(
    const __grid_constant__ vitune::PackedAttentionJudgeParams params) {
  vitune::packed_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(128) vitune_packed_attention_plain(
    const __grid_constant__ vitune::PackedAttentionJudgeParams params) {
  vitune::packed_reference<float>(params);
}
