// templates/attention_backward/dropout_sm90.cuh -- Both passes of the family sm90 with dropout.
//
// dq_sm90.cuh and dkv_sm90.cuh with D, which is 0 or, where a weight is kept, the scale of those:
// dV = (P o D)' dO and dS = P o (D o dP - delta), where delta is as it is without dropout, for out
// has gone through it. The bits that say what is kept are drawn while products are under way.
#pragma once

#include "attention/dropout.cuh"
#include "attention_backward/dkv_sm90.cuh"
#include "attention_backward/dq_sm90.cuh"
// After what it is made of.
#include "attention_backward/dropout_params.cuh"

namespace vitune {

// Where rows are keys: of a warp's sixteen and 32 queries, a bit for each of a thread's values.
struct KeptKeys {
  u32 sixteens[2];  // of queries
  u32 odd_bytes;    // 0x1111 for an odd key, whose bytes are the upper ones of two

  // By whole warps, from multiples of sixteen on.
  __device__ __forceinline__ void draw(const DropoutCells& cells, int key0, int query0) {
    constexpr u32 kSigns = 0x80808080u;
    const int lane = int(threadIdx.x) % kWarpSize;
    const bool is_odd = (lane & 4) != 0;
    u32 kept[4];
    cells.draw(kept, query0 / 4 + (is_odd ? 4 : 0) + lane % 4, key0 / 4 + lane / 8);
    const u32 mine = (kept[0] & kSigns) | (kept[1] & kSigns) >> 1 | (kept[2] & kSigns) >> 2 |
                     (kept[3] & kSigns) >> 3;
    const u32 other = __shfl_xor_sync(0xffffffffu, mine, 4);
    sixteens[0] = is_odd ? other : mine;
    sixteens[1] = is_odd ? mine : other;
    odd_bytes = is_odd ? 0x1111u : 0u;
  }
  // All bits if value `i` is kept of the four that a thread has in tile `tile` of eight queries.
  __device__ __forceinline__ u32 value(int tile, int i) const {
    const int word = 2 * (i % 2) + tile % 2;
    const u32 selector = u32(8 + i / 2 * 2) * 0x1111u + odd_bytes;
    return permute_bytes(sixteens[tile / 2] << word, 0, selector);
  }
};

// A step's weights, some of which count, times a factor: KeptRows<2> or KeptKeys say which.
template <class Kept, int kWidth>
struct SomeKept {
  Kept kept[ceil_div(kWidth, 32)];
  u32 scale;  // the factor, as bits

  __device__ __forceinline__ float factor(int at) const {
    return __uint_as_float(scale & kept[at / 16].value(at / 4 % 4, at % 4));
  }
  // As AllKept has them.
  __device__ __forceinline__ float weight(float weight, int at) const {
    return weight * factor(at);
  }
  __device__ __forceinline__ float gradient(float dp, float delta, int at) const {
    return __fmaf_rn(dp, factor(at), -delta);
  }
};

// QueryRows or KeyRows.
template <class Rows, class Kept>
struct DroppedRows : Rows {
  using Rows::Rows;
  DropoutCells cells;
  u32 kept_scale;  // as bits

  __device__ __forceinline__ void begin_head(const AttentionDropout& dropout, int head_index) {
    cells.begin(dropout, head_index);
    kept_scale = __float_as_uint(dropout.scale);
  }
  template <int kWidth>
  __device__ __forceinline__ SomeKept<Kept, kWidth> begin_step(int number) const {
    SomeKept<Kept, kWidth> step;
    step.scale = kept_scale;
    const int row0 = this->row0 + int(threadIdx.x) / kWarpSize % 4 * 16;
#pragma unroll
    for (int i = 0; i < ceil_div(kWidth, 32); ++i) {
      step.kept[i].draw(cells, row0, number * Rows::Pass::kStep + 32 * i);
    }
    return step;
  }
};

template <class Config>
__device__ __forceinline__ void attention_backward_dq_sm90_dropout(
    const AttentionBackwardDropoutParams& p, const AttentionBackwardTensorMaps& maps) {
  using Rows = DroppedRows<QueryRows<QueryPass<Config>>, KeptRows<2>>;
  dq_pass<Rows>(p.backward, maps,
                [&](Rows& rows, int head_index) { rows.begin_head(p.dropout, head_index); });
}

template <class Config>
__device__ __forceinline__ void attention_backward_dkv_sm90_dropout(
    const AttentionBackwardDropoutParams& p, const AttentionBackwardTensorMaps& maps) {
  using Rows = DroppedRows<KeyRows<KeyPass<Config>>, KeptKeys>;
  dkv_pass<Rows>(p.backward, maps,
                 [&](Rows& rows, int head_index) { rows.begin_head(p.dropout, head_index); });
}

}  // namespace vitune
