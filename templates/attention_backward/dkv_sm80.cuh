// templates/attention_backward/dkv_sm80.cuh -- dK and dV with mma.sync: the second pass.
//
// A CTA owns keys of one kv head, some of them for each warp; Q and dO of its query heads pass by
// in steps. Scores have query rows as in dq_sm80.cuh, so that bias and mask are read along their
// rows; P and dS are transposed in registers (movmatrix) to be the A operands of dV = P' dO and
// dK = scale dS' Q.
#pragma once

#include "attention/tile_scheduler.cuh"
#include "attention_backward/geometry_sm80.cuh"
#include "attention_backward/products_sm80.cuh"
#include "primitives/rules.cuh"
#include "primitives/shared_numbers.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
struct DkvTraits : AttentionBackwardTraits<C> {
  static constexpr AttentionBackwardSm80 kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, attention_backward_sm80_rules().all)>::kValue);
  static constexpr int kWarps = kG.dkv_warps, kThreads = kG.dkv_threads();
  static constexpr int kBlock = kG.dkv_block(), kGroups = kG.dkv_groups;
  static constexpr int kWarpKeys = 16 * kGroups;
  static constexpr int kStepRows = kG.dkv_rows, kStages = kG.dkv_stages;
  static constexpr bool kQueryInRegisters = false;  // of a step
  static constexpr bool kKeysInRegisters = kG.dkv_in_registers != 0;
  static constexpr int kPlaneBytes = kBlock * kG.pitch();  // of K, of V
  static constexpr int kTileBytes = kStepRows * kG.pitch();
  static constexpr int kStageBytes = 2 * kTileBytes + 2 * 4 * kStepRows;
  static_assert(kStageBytes == kG.dkv_stage_bytes());
};

// The query rows that a CTA walks over, of each query head of its kv head, and their tiles.
template <class T>
struct DkvStages {
  const AttentionBackwardParams& p;
  int batch, first_head;       // of the query heads
  int first_step, head_steps;  // under a causal mask the first rows see none of the keys
  u32 shared;

  struct Place {
    int head, row0;
  };
  __device__ __forceinline__ int steps() const { return head_steps * p.call.heads_per_kv; }
  __device__ __forceinline__ Place place(int step) const {
    const int head = step / head_steps;
    return {first_head + head, (first_step + step - head * head_steps) * T::kStepRows};
  }

  __device__ __forceinline__ u32 queries(int step) const {
    return shared + step % T::kStages * T::kStageBytes;
  }
  __device__ __forceinline__ u32 gradients(int step) const { return queries(step) + T::kTileBytes; }
  // The rows' log-sum-exp, then their delta.
  __device__ __forceinline__ u32 numbers(int step) const {
    return queries(step) + 2 * T::kTileBytes;
  }

  __device__ __forceinline__ void load(int step) const {
    const auto [head, row0] = place(step);
    const AttentionParams& call = p.call;
    const AttentionView &q = call.q_view, &dout = p.dout_view;
    const int left = call.queries - row0;
    const u16* const q_from =
        static_cast<const u16*>(call.q) + batch * q.batch + head * q.head + row0 * q.row;
    load_rows<T::kHeadDim, T::kStepRows, T::kThreads, T::kCopyBytes, 0>(queries(step), q_from,
                                                                        q.row, left, threadIdx.x);
    const u16* const dout_from =
        static_cast<const u16*>(p.dout) + batch * dout.batch + head * dout.head + row0 * dout.row;
    load_rows<T::kHeadDim, T::kStepRows, T::kThreads, T::kCopyBytes, 0>(
        gradients(step), dout_from, dout.row, left, threadIdx.x);
    const i64 first = (i64(batch) * call.heads + head) * call.queries + row0;
    for (int i = threadIdx.x; i < 2 * T::kStepRows; i += T::kThreads) {
      const int row = i % T::kStepRows;
      const float* const from = (i < T::kStepRows ? call.lse : p.delta) + first;
      cp_async<4>(numbers(step) + 4 * i, from + (row < left ? row : 0), row < left);
    }
  }
};

// A warp's keys: what stays from step to step.
template <class T>
struct DkvWarp {
  const AttentionBackwardParams& p;
  const LaneOffsets<T> lanes;
  const int lane, key0;
  KeyOperand<T, T::kWarpKeys, T::kKeysInRegisters> keys, values;
  ScoreOperands<T, T::kWarpKeys> operands;
  float dk[T::kGroups][T::kHeadTiles][4], dv[T::kGroups][T::kHeadTiles][4];

  __device__ __forceinline__ DkvWarp(const AttentionBackwardParams& params, int this_lane, int key,
                                     u32 key_rows, u32 value_rows)
      : p(params),
        lanes(this_lane),
        lane(this_lane),
        key0(key),
        keys(key_rows, lanes),
        values(value_rows, lanes) {
    clear(dk);
    clear(dv);
  }

  // What sixteen query rows give dK and dV: their tiles, and where their log-sum-exp and delta are.
  template <bool kEdge>
  __device__ __forceinline__ void add_rows(const RowPlace& at, u32 query_rows, u32 gradient_rows,
                                           u32 lse, u32 delta) {
    const int limit = p.call.keys - key0;
    operands.begin(p.call, at);
    operands.template fetch<kEdge>(key0, limit);
    RowStatistics<T> rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.g + 8 * half;
      rows.set(half, __uint_as_float(load_shared(lse + 4 * row)),
               __uint_as_float(load_shared(delta + 4 * row)), at.row0 + row < p.call.queries);
    }
    Queries<T> queries, gradients;
    queries.init(query_rows, lane);
    gradients.init(gradient_rows, lane);
    ScoreTile<T::kWarpKeys> s, ds;
    multiply_rows<T>(s, queries, keys, lanes);
    multiply_rows<T>(ds, gradients, values, lanes);
    operands.template weigh<kEdge>(s, ds, rows, p.call.scale, key0, limit);
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      u32 a[4];
      pack_keys<T, T::kWarpKeys>(a, s, group);
      add_products<T>(dv[group], a, gradient_rows + lane_block<T>(lane));
      pack_keys<T, T::kWarpKeys>(a, ds, group);
      add_products<T>(dk[group], a, query_rows + lane_block<T>(lane));
    }
  }

  // Rows of the accumulators are keys in the order of tiles.
  __device__ __forceinline__ void stage(u32 staging,
                                        const float (&sums)[T::kGroups][T::kHeadTiles][4],
                                        float factor) const {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      stage_sums<T>(staging + 16 * group * T::kPitch, pair_key<T::kPermuted>(0, g),
                    pair_key<T::kPermuted>(1, g), t, sums[group], factor);
    }
  }
};

template <class C>
__device__ void attention_backward_dkv(const AttentionBackwardParams& p) {
  using T = DkvTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const AttentionParams& call = p.call;
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  const int blocks = ceil_div(call.keys, T::kBlock);
  const int index = int(blockIdx.x) / blocks, block = int(blockIdx.x) - index * blocks;
  const int kv_heads = quotient(call.heads, call.by_heads_per_kv);
  const int batch = index / kv_heads, kv_head = index - batch * kv_heads;
  const int cta_key = block * T::kBlock, key0 = cta_key + T::kWarpKeys * warp;
  const AttentionView &k = call.k_view, &v = call.v_view;
  const u32 values = shared + T::kPlaneBytes;
  const int first_step = T::kCausal ? cta_key / T::kStepRows : 0;
  const int head_steps = max(ceil_div(call.queries, T::kStepRows) - first_step, 0);
  const DkvStages<T> stages{p,          batch,      kv_head * call.heads_per_kv,
                            first_step, head_steps, shared + 2 * T::kPlaneBytes};

  const u16* const k_from = static_cast<const u16*>(call.k) + batch * k.batch + kv_head * k.head;
  load_rows<T::kHeadDim, T::kBlock, T::kThreads, T::kCopyBytes, 0>(
      shared, k_from + cta_key * k.row, k.row, call.keys - cta_key, threadIdx.x);
  const u16* const v_from = static_cast<const u16*>(call.v) + batch * v.batch + kv_head * v.head;
  load_rows<T::kHeadDim, T::kBlock, T::kThreads, T::kCopyBytes, 0>(
      values, v_from + cta_key * v.row, v.row, call.keys - cta_key, threadIdx.x);
  copy_commit();
  const int steps = stages.steps();
#pragma unroll
  for (int step = 0; step < max_of(T::kStages - 1, 1); ++step) {
    if (step < steps) stages.load(step);
    copy_commit();
  }
  copy_wait<max_of(T::kStages - 1, 1)>();
  __syncthreads();  // K and V are there

  const u32 warp_rows = T::kWarpKeys * warp * T::kPitch;
  DkvWarp<T> work(p, lane, key0, shared + warp_rows, values + warp_rows);
  const bool is_active = key0 < call.keys;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<max_of(T::kStages - 2, 0)>();
    __syncthreads();  // this step's tiles are there, those of the last one have been read
    if (T::kStages > 1) {
      if (step + T::kStages - 1 < steps) stages.load(step + T::kStages - 1);
      copy_commit();
    }
    const auto [head, step_row] = stages.place(step);
#pragma unroll 1
    for (int r = 0; r < T::kStepRows; r += 16) {
      const int row0 = step_row + r;
      if (!is_active || row0 >= call.queries) break;
      if (T::kCausal && row0 + 15 < key0) continue;
      const RowPlace at = {row0, lane / 4, lane % 4, batch, head};
      const u32 numbers = stages.numbers(step) + 4 * r;
      const u32 query_rows = stages.queries(step) + r * T::kPitch;
      const u32 gradient_rows = stages.gradients(step) + r * T::kPitch;
      if (is_edge<T, T::kWarpKeys>(call, row0, key0)) {
        work.template add_rows<true>(at, query_rows, gradient_rows, numbers,
                                     numbers + 4 * T::kStepRows);
      } else {
        work.template add_rows<false>(at, query_rows, gradient_rows, numbers,
                                      numbers + 4 * T::kStepRows);
      }
    }
    if (T::kStages == 1 && step + 1 < steps) {
      __syncthreads();
      stages.load(step + 1);
      copy_commit();
    }
  }
  if (!is_active) return;
  __syncwarp();  // its keys and values are no longer read, by this warp alone
  work.stage(shared + warp_rows, work.dk, call.scale);
  work.stage(values + warp_rows, work.dv, 1.f);
  __syncwarp();
  const AttentionView &dk = p.dk_view, &dv = p.dv_view;
  const int left = call.keys - key0;
  store_rows<T, T::kWarpKeys>(
      shared + warp_rows,
      static_cast<u16*>(p.dk) + batch * dk.batch + kv_head * dk.head + key0 * dk.row, dk.row, left,
      lane);
  store_rows<T, T::kWarpKeys>(
      values + warp_rows,
      static_cast<u16*>(p.dv) + batch * dv.batch + kv_head * dv.head + key0 * dv.row, dv.row, left,
      lane);
}

}  // namespace vitune
