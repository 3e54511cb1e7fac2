// templates/reference/ladder.cuh -- What the rungs of the ladder share: plain attention kernels
// from one thread per row to tensor cores, to read and to compare with, not to serve.
//
//   attention_naive             one thread per query row, keys and values from global memory
//   attention_tiled             the same, keys and values of a CTA's rows in shared memory
//   attention_register_blocked  a patch of scores per thread: each load serves several products
//   attention_tensor_core       the products by mma.sync
//
// All take 16-bit inputs in any strides that are multiples of 8, sum in fp32 and go over the keys
// once with the online softmax (Milakov and Gimelshein 2018): the maximum so far is taken out of
// every exponent, and what was summed before is scaled when it rises.
#pragma once

#include "attention/params.cuh"
#include "primitives/element.cuh"
#include "primitives/math.cuh"
#include "primitives/types.cuh"

namespace vitune {

// One head's tensors.
struct LadderHead {
  const u16 *q, *k, *v;
  u16* o;
};

__device__ __forceinline__ LadderHead ladder_head(const AttentionParams& p, int head_of_all) {
  const i64 batch = head_of_all / p.heads, head = head_of_all % p.heads;
  const i64 kv = head / p.heads_per_kv;
  const auto at = [&](const void* data, const AttentionView& view, i64 which) {
    return static_cast<const u16*>(data) + batch * view.batch + which * view.head;
  };
  return {at(p.q, p.q_view, head), at(p.k, p.k_view, kv), at(p.v, p.v_view, kv),
          const_cast<u16*>(at(p.o, p.o_view, head))};
}

// The maximum, sum and output of one row so far, in base 2.
template <int kColumns>
struct LadderRow {
  float maximum, sum, out[kColumns];

  __device__ __forceinline__ void clear() {
    maximum = minus_infinity();
    sum = 0;
#pragma unroll
    for (int x = 0; x < kColumns; ++x) out[x] = 0;
  }
  // Takes in a new maximum, which is at least the old one and finite.
  __device__ __forceinline__ void rescale(float top) {
    const float factor = exp2_approx(maximum - top);
    maximum = top;
    sum *= factor;
#pragma unroll
    for (int x = 0; x < kColumns; ++x) out[x] *= factor;
  }
};

// A 16-bit row in registers, as fp32.
template <class Config>
__device__ __forceinline__ void ladder_load(float (&row)[Config::kHeadDim], const u16* from) {
#pragma unroll
  for (int x = 0; x < Config::kHeadDim; x += 2) {
    const u32 pair = *reinterpret_cast<const u32*>(from + x);
    row[x] = Element<Config::kElement>::low(pair);
    row[x + 1] = Element<Config::kElement>::high(pair);
  }
}

template <class Config>
__device__ __forceinline__ void ladder_store(u16* to, const LadderRow<Config::kHeadDim>& row) {
#pragma unroll
  for (int x = 0; x < Config::kHeadDim; x += 2) {
    *reinterpret_cast<u32*>(to + x) =
        Element<Config::kElement>::pack(row.out[x] / row.sum, row.out[x + 1] / row.sum);
  }
}

}  // namespace vitune
