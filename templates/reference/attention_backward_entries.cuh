// templates/reference/attention_backward_entries.cuh -- The judge of all gradients of attention,
// and its yardstick.
//
// Four kernels on the tiles of attention_reference.cuh: delta; dQ, whose CTAs have 64 query rows;
// dK and dV, whose CTAs have 64 keys; dbias. With double it is the judge; with float the yardstick:
// fp32 sums, P and dS rounded to 16 bits before products, each result rounded once.
#pragma once

#include "attention/params.cuh"
#include "attention_backward/params.cuh"
#include "reference/attention_dropout.cuh"
#include "reference/attention_reference.cuh"
// After what it is made of.
#include "reference/attention_backward_judge_params.cuh"

namespace vitune {

// A tile of 64 x 32 scores: its rows are queries, or with kByKeys keys.
template <class Scalar>
using RefTile = Scalar[kRowsEach][kKeysEach];

// One head's rows of each tensor, from `row` and `key` on.
struct RefHead {
  RefPlace place;
  RefRows q, dout, k, v;
};

__device__ inline RefHead ref_head(const AttentionBackwardJudgeParams& p, long long batch,
                                   long long head, long long row, long long key) {
  const AttentionParams& call = p.forward.call;
  const long long tiles = (call.queries + kRefRows - 1) / kRefRows;
  const AttentionView& view = p.call.dout_view;
  const RefU16* const dout =
      static_cast<const RefU16*>(p.call.dout) + batch * view.batch + head * view.head;
  const RefPlace place = ref_place(p.forward, (batch * call.heads + head) * tiles);
  return {place,
          {place.q, call.q_view.row, row, call.queries},
          {dout, view.row, row, call.queries},
          {place.k, call.k_view.row, key, call.keys},
          {place.v, call.v_view.row, key, call.keys}};
}

// The weights of a tile, and the gradients of its scores.
template <class Scalar, bool kByKeys>
__device__ inline void ref_gradients(const AttentionBackwardJudgeParams& p, const RefHead& at,
                                     RefShared<Scalar>& shared, RefTile<Scalar>& weights,
                                     RefTile<Scalar>& ds) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  ref_products(p.forward, kByKeys ? at.k : at.q, kByKeys ? at.q : at.k, shared, weights);
  ref_products(p.forward, kByKeys ? at.v : at.dout, kByKeys ? at.dout : at.v, shared, ds);
  const AttentionParams& call = p.forward.call;
  for (int i = 0; i < kRowsEach; ++i) {
    for (int j = 0; j < kKeysEach; ++j) {
      const long long row = at.q.first + (kByKeys ? c + kRefLanes * j : r + kRefLanes * i);
      const long long key = at.k.first + (kByKeys ? r + kRefLanes * i : c + kRefLanes * j);
      bool seen = ref_visible(p.forward, at.place, row, key);
      const long long dense = seen ? ref_dense_row(p.forward, at.place, row) : 0;
      seen = seen && call.lse[dense] != reference_minus_infinity();
      if (!seen) {
        weights[i][j] = ds[i][j] = 0;
        continue;
      }
      Scalar score = weights[i][j] * Scalar(p.forward.scale);
      if (call.bias != nullptr) score += Scalar(ref_bias(p.forward, at.place, row, key));
      const bool kept =
          ref_is_kept(p.forward, at.place.batch * call.heads + at.place.head, row, key);
      const Scalar factor = kept ? ref_kept_scale<Scalar>(p.forward) : Scalar(0);
      const Scalar weight = ref_exp(score - Scalar(call.lse[dense]));
      weights[i][j] = weight * factor;
      ds[i][j] = weight * (factor * ds[i][j] - static_cast<const Scalar*>(p.delta)[dense]);
    }
  }
}

// acc += a tile times rows of `values`.
template <class Scalar>
__device__ inline void ref_add_tile(const AttentionBackwardJudgeParams& p,
                                    const RefTile<Scalar>& tile, const RefRows& values,
                                    RefShared<Scalar>& shared,
                                    Scalar (&acc)[kRowsEach][kColumnsEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  __syncthreads();  // another tile is still being read
  for (int i = 0; i < kRowsEach; ++i) {
    for (int j = 0; j < kKeysEach; ++j) {
      shared.p[r + kRefLanes * i][c + kRefLanes * j] = ref_weight(tile[i][j], p.forward.element);
    }
  }
  ref_accumulate(p.forward, values, shared, acc);
}

// One result: the answer in fp32, or what the call's output has.
__device__ inline void ref_write(float* answer, long long dense, void*, long long, int,
                                 double value) {
  answer[dense] = float(value);
}
__device__ inline void ref_write(float*, long long, void* to, long long at, int type, float value) {
  if (type == kSupportFp32) {
    static_cast<float*>(to)[at] = value;
  } else {
    static_cast<RefU16*>(to)[at] = bits16(value, type);
  }
}

// 64 rows of dq, dk or dv, of head `head` of `heads`.
template <class Scalar>
__device__ inline void ref_write_rows(const AttentionBackwardJudgeParams& p, float* answer,
                                      void* to, const AttentionView& view, long long batch,
                                      long long heads, long long head, const RefRows& rows,
                                      Scalar scale, const Scalar (&acc)[kRowsEach][kColumnsEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  for (int i = 0; i < kRowsEach; ++i) {
    const long long row = rows.first + r + kRefLanes * i;
    if (row >= rows.count) continue;
    for (int j = 0; j < kColumnsEach; ++j) {
      const int x = c + kRefLanes * j;
      if (x >= p.forward.head_size) continue;
      const long long dense = ((batch * heads + head) * rows.count + row) * p.forward.head_size + x;
      ref_write(answer, dense, to, batch * view.batch + head * view.head + row * view.row + x,
                p.forward.element, acc[i][j] * scale);
    }
  }
}

template <class Scalar>
__device__ inline void ref_delta(const AttentionBackwardJudgeParams& p) {
  const AttentionParams& call = p.forward.call;
  const AttentionView &o = call.o_view, &dout = p.call.dout_view;
  const long long rows = (long long)(call.batch) * call.heads * call.queries;
  const long long threads = (long long)(gridDim.x) * blockDim.x;
  for (long long i = (long long)(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += threads) {
    const long long row = i % call.queries, head = i / call.queries % call.heads;
    const long long batch = i / call.queries / call.heads;
    const RefU16* const out =
        static_cast<const RefU16*>(call.o) + batch * o.batch + head * o.head + row * o.row;
    const RefU16* const gradient = static_cast<const RefU16*>(p.call.dout) + batch * dout.batch +
                                   head * dout.head + row * dout.row;
    Scalar sum = 0;
    for (int x = 0; x < p.forward.head_size; ++x) {
      sum += Scalar(value16(out[x], p.forward.element)) *
             Scalar(value16(gradient[x], p.forward.element));
    }
    static_cast<Scalar*>(p.delta)[i] = sum;
  }
}

template <class Scalar>
__device__ inline void ref_dq(const AttentionBackwardJudgeParams& p) {
  __shared__ RefShared<Scalar> shared;
  const AttentionParams& call = p.forward.call;
  const long long tiles = (call.queries + kRefRows - 1) / kRefRows;
  const long long items = tiles * call.heads * call.batch;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long head = item / tiles % call.heads, batch = item / tiles / call.heads;
    const long long row0 = item % tiles * kRefRows;
    RefHead at = ref_head(p, batch, head, row0, 0);
    Scalar acc[kRowsEach][kColumnsEach] = {};
    RefTile<Scalar> weights, ds;
    const long long seen = row0 + kRefRows;
    const long long end = p.forward.causal && seen < call.keys ? seen : call.keys;
    for (; at.k.first < end; at.k.first += kRefKeys, at.v.first += kRefKeys) {
      ref_gradients<Scalar, false>(p, at, shared, weights, ds);
      ref_add_tile(p, ds, at.k, shared, acc);
    }
    ref_write_rows(p, p.dq, p.call.dq, p.call.dq_view, batch, call.heads, head, at.q,
                   Scalar(p.forward.scale), acc);
  }
}

template <class Scalar>
__device__ inline void ref_dkv(const AttentionBackwardJudgeParams& p) {
  __shared__ RefShared<Scalar> shared;
  const AttentionParams& call = p.forward.call;
  const long long tiles = (call.keys + kRefRows - 1) / kRefRows;
  const long long kv_heads = call.heads / call.heads_per_kv;
  const long long items = tiles * kv_heads * call.batch;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long kv_head = item / tiles % kv_heads, batch = item / tiles / kv_heads;
    const long long key0 = item % tiles * kRefRows;
    Scalar dk[kRowsEach][kColumnsEach] = {}, dv[kRowsEach][kColumnsEach] = {};
    RefTile<Scalar> weights, ds;
    const long long row0 = p.forward.causal ? key0 : 0;
    for (int i = 0; i < call.heads_per_kv; ++i) {
      RefHead at = ref_head(p, batch, kv_head * call.heads_per_kv + i, row0, key0);
      for (; at.q.first < call.queries; at.q.first += kRefKeys, at.dout.first += kRefKeys) {
        ref_gradients<Scalar, true>(p, at, shared, weights, ds);
        ref_add_tile(p, weights, at.dout, shared, dv);
        ref_add_tile(p, ds, at.q, shared, dk);
      }
    }
    const RefRows rows = {nullptr, 0, key0, call.keys};
    ref_write_rows(p, p.dk, p.call.dk, p.call.dk_view, batch, kv_heads, kv_head, rows,
                   Scalar(p.forward.scale), dk);
    ref_write_rows(p, p.dv, p.call.dv, p.call.dv_view, batch, kv_heads, kv_head, rows, Scalar(1),
                   dv);
  }
}

template <class Scalar>
__device__ inline void ref_dbias(const AttentionBackwardJudgeParams& p) {
  __shared__ RefShared<Scalar> shared;
  const AttentionParams& call = p.forward.call;
  const AttentionBackwardParams& all = p.call;
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  const long long row_tiles = (call.queries + kRefRows - 1) / kRefRows;
  const long long key_tiles = (call.keys + kRefKeys - 1) / kRefKeys;
  const long long items = row_tiles * key_tiles * all.dbias_heads * all.dbias_batches;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long tile = item % (row_tiles * key_tiles), entry = item / (row_tiles * key_tiles);
    const long long row0 = tile / key_tiles * kRefRows, key0 = tile % key_tiles * kRefKeys;
    RefTile<Scalar> sums = {}, weights, ds;
    for (int i = 0; i < all.sharing_batches * all.sharing_heads; ++i) {
      const long long batch = entry / all.dbias_heads + i / all.sharing_heads * all.dbias_batches;
      const long long head = entry % all.dbias_heads + i % all.sharing_heads;
      const RefHead at = ref_head(p, batch, head, row0, key0);
      ref_gradients<Scalar, false>(p, at, shared, weights, ds);
      for (int j = 0; j < kRowsEach * kKeysEach; ++j) {
        sums[j / kKeysEach][j % kKeysEach] += ds[j / kKeysEach][j % kKeysEach];
      }
    }
    for (int i = 0; i < kRowsEach; ++i) {
      for (int j = 0; j < kKeysEach; ++j) {
        const long long row = row0 + r + kRefLanes * i, key = key0 + c + kRefLanes * j;
        if (row >= call.queries || key >= call.keys) continue;
        const long long dense = (entry * call.queries + row) * call.keys + key;
        ref_write(p.dbias, dense, all.dbias, dense, p.dbias_type, sums[i][j]);
      }
    }
  }
}

}  // namespace vitune

#define VITUNE_ATTENTION_BACKWARD_ENTRY(kernel, scalar, name)                     \
  extern "C" __global__ void __launch_bounds__(256)                               \
      name(const __grid_constant__ vitune::AttentionBackwardJudgeParams params) { \
    vitune::kernel<scalar>(params);                                               \
  }
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_delta, double, vitune_attention_backward_reference_delta)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dq, double, vitune_attention_backward_reference_dq)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dkv, double, vitune_attention_backward_reference_dkv)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dbias, double, vitune_attention_backward_reference_dbias)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_delta, float, vitune_attention_backward_plain_delta)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dq, float, vitune_attention_backward_plain_dq)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dkv, float, vitune_attention_backward_plain_dkv)
VITUNE_ATTENTION_BACKWARD_ENTRY(ref_dbias, float, vitune_attention_backward_plain_dbias)
#undef VITUNE_ATTENTION_BACKWARD_ENTRY
