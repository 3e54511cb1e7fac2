// templates/attention_backward/dq_sm80.cuh -- dQ with mma.sync, and delta: the first pass.
//
// A CTA owns query rows of one head, sixteen for each warp; K and V pass by in steps, as in
// forward. dQ = scale dS K: dS is laid out as the A operand once it is rounded to 16 bits.
#pragma once

#include "attention/tile_scheduler.cuh"
#include "attention_backward/geometry_sm80.cuh"
#include "attention_backward/products_sm80.cuh"
#include "primitives/rules.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
struct DqTraits : AttentionBackwardTraits<C> {
  static constexpr AttentionBackwardSm80 kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, attention_backward_sm80_rules().all)>::kValue);
  static constexpr int kWarps = kG.dq_warps, kThreads = kG.dq_threads(), kBlock = kG.dq_block();
  static constexpr int kStepKeys = kG.dq_keys, kStages = kG.dq_stages, kChunk = kG.kChunkKeys;
  static constexpr bool kQueryInRegisters = kG.dq_in_registers != 0;
  static constexpr int kRowBytes = 16 * kG.pitch();  // of a warp's rows of one tensor
  static constexpr int kTileBytes = kStepKeys * kG.pitch();
  static_assert(3 * kWarps * kRowBytes + 2 * kStages * kTileBytes == kG.dq_bytes());
};

// The steps of K and V of a CTA in shared memory.
template <class T>
struct DqStages {
  const AttentionParams& p;
  const HeadPlace& head;
  u32 shared;

  __device__ __forceinline__ u32 keys(int step) const {
    return shared + 2 * (step % T::kStages) * T::kTileBytes;
  }
  __device__ __forceinline__ u32 values(int step) const { return keys(step) + T::kTileBytes; }
  __device__ __forceinline__ void load(int step) const {
    const int key0 = step * T::kStepKeys, left = p.keys - key0;
    load_rows<T::kHeadDim, T::kStepKeys, T::kThreads, T::kCopyBytes, 0>(
        keys(step), head.k + key0 * p.k_view.row, p.k_view.row, left, threadIdx.x);
    load_rows<T::kHeadDim, T::kStepKeys, T::kThreads, T::kCopyBytes, 0>(
        values(step), head.v + key0 * p.v_view.row, p.v_view.row, left, threadIdx.x);
  }
};

// Sums of products of a warp's rows of two tensors, of this thread's rows.
template <class T>
__device__ __forceinline__ void row_products(float (&sums)[2], u32 left, u32 right, int lane) {
  using E = Element<T::kElement>;
  sums[0] = sums[1] = 0.f;
#pragma unroll
  for (int step = 0; step < T::kHeadSteps + T::kHalfStep; ++step) {
    const bool is_half = T::kHalfStep && step == T::kHeadSteps;
    const u32 at = lane_block<T>(lane) + 32 * step;
    u32 a[4], b[4];
    if (is_half) {
      ldmatrix_x2(a[0], a[1], left + at);
      ldmatrix_x2(b[0], b[1], right + at);
    } else {
      ldmatrix_x4(a, left + at);
      ldmatrix_x4(b, right + at);
    }
#pragma unroll
    for (int i = 0; i < (is_half ? 2 : 4); ++i) {
      sums[i % 2] = __fmaf_rn(E::low(a[i]), E::low(b[i]), sums[i % 2]);
      sums[i % 2] = __fmaf_rn(E::high(a[i]), E::high(b[i]), sums[i % 2]);
    }
  }
  sums[0] = quad_sum(sums[0]);
  sums[1] = quad_sum(sums[1]);
}

// A warp's rows: what stays from step to step.
template <class T>
struct DqWarp {
  const AttentionParams& p;
  const LaneOffsets<T> lanes;
  Queries<T> queries, gradients;
  RowStatistics<T> rows;
  ScoreOperands<T, T::kChunk> operands;
  float sums[T::kHeadTiles][4];

  __device__ __forceinline__ DqWarp(const AttentionParams& params, int lane)
      : p(params), lanes(lane) {}

  // The weights of kChunk keys from key0 on, and what they give dQ.
  template <bool kEdge>
  __device__ __forceinline__ void add_chunk(u32 keys, u32 values, int key0) {
    const int limit = p.keys - key0;
    operands.template fetch<kEdge>(key0, limit);
    ScoreTile<T::kChunk> s, ds;
    multiply_rows<T>(s, queries, KeyOperand<T, T::kChunk, false>(keys, lanes), lanes);
    multiply_rows<T>(ds, gradients, KeyOperand<T, T::kChunk, false>(values, lanes), lanes);
    operands.template weigh<kEdge>(s, ds, rows, p.scale, key0, limit);
#pragma unroll
    for (int pair = 0; pair < T::kChunk / 16; ++pair) {
      u32 a[4];
      pack_rows<T, T::kChunk>(a, ds, pair);
      add_products<T>(sums, a, keys + 16 * pair * T::kPitch + lanes.value_pair);
    }
  }
};

template <class C>
__device__ void attention_backward_dq(const AttentionBackwardParams& p) {
  using T = DqTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const AttentionParams& call = p.call;
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  const int blocks = ceil_div(call.queries, T::kBlock);
  const int index = int(blockIdx.x) / blocks;
  // Under a causal mask the last rows have the most keys: they begin first.
  const int place = int(blockIdx.x) - index * blocks;
  const int block = T::kCausal ? blocks - 1 - place : place;
  const int cta_row = block * T::kBlock, row0 = cta_row + 16 * warp;
  const HeadPlace head(call, index);
  const int left = call.queries - row0;
  const bool is_active = left > 0;
  const u32 q_rows = shared + 3 * warp * T::kRowBytes;
  const u32 dout_rows = q_rows + T::kRowBytes, out_rows = dout_rows + T::kRowBytes;
  const DqStages<T> stages{call, head, shared + 3 * T::kWarps * T::kRowBytes};
  const int seen = T::kCausal ? min(call.keys, cta_row + T::kBlock) : call.keys;
  const int steps = ceil_div(seen, T::kStepKeys);

  if (is_active) {
    const AttentionView &q = call.q_view, &o = call.o_view, &dout = p.dout_view;
    load_rows<T::kHeadDim, 16, kWarpSize, T::kCopyBytes, 0>(q_rows, head.q + row0 * q.row, q.row,
                                                            left, lane);
    const u16* const dout_from = static_cast<const u16*>(p.dout) + head.batch * dout.batch +
                                 head.head * dout.head + row0 * dout.row;
    load_rows<T::kHeadDim, 16, kWarpSize, T::kCopyBytes, 0>(dout_rows, dout_from, dout.row, left,
                                                            lane);
    const u16* const out_from =
        static_cast<const u16*>(call.o) + head.batch * o.batch + head.head * o.head + row0 * o.row;
    load_rows<T::kHeadDim, 16, kWarpSize, T::kCopyBytes, 0>(out_rows, out_from, o.row, left, lane);
  }
  copy_commit();
#pragma unroll
  for (int step = 0; step < max_of(T::kStages - 1, 1); ++step) {
    if (step < steps) stages.load(step);
    copy_commit();
  }
  copy_wait<max_of(T::kStages - 1, 1)>();
  __syncwarp();  // the warp's rows are there

  DqWarp<T> work(call, lane);
  const int g = lane / 4, t = lane % 4;
  if (is_active) {
    float delta[2];
    row_products<T>(delta, dout_rows, out_rows, lane);
    const i64 first = (i64(head.batch) * call.heads + head.head) * call.queries + row0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      const bool is_there = row < left;
      work.rows.set(half, is_there ? __ldg(call.lse + first + row) : 0.f, delta[half], is_there);
      if (is_there && t == 0) p.delta[first + row] = delta[half];
    }
    work.queries.init(q_rows, lane);
    work.gradients.init(dout_rows, lane);
    work.operands.begin(call, {row0, g, t, head.batch, head.head});
  }
  clear(work.sums);
  const int end = T::kCausal ? min(call.keys, row0 + 16) : call.keys;  // of what the warp sees
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<max_of(T::kStages - 2, 0)>();
    __syncthreads();  // this step's tiles are there, those of the last one have been read
    if (T::kStages > 1) {
      if (step + T::kStages - 1 < steps) stages.load(step + T::kStages - 1);
      copy_commit();
    }
    if (is_active) {
#pragma unroll 1
      for (int chunk = 0; chunk < T::kStepKeys; chunk += T::kChunk) {
        const int key0 = step * T::kStepKeys + chunk;
        if (key0 >= end) break;
        const u32 keys = stages.keys(step) + chunk * T::kPitch;
        const u32 values = stages.values(step) + chunk * T::kPitch;
        if (is_edge<T, T::kChunk>(call, row0, key0)) {
          work.template add_chunk<true>(keys, values, key0);
        } else {
          work.template add_chunk<false>(keys, values, key0);
        }
      }
    }
    if (T::kStages == 1 && step + 1 < steps) {
      __syncthreads();
      stages.load(step + 1);
      copy_commit();
    }
  }
  if (!is_active) return;
  __syncwarp();  // its queries are no longer read
  stage_sums<T>(q_rows, g, g + 8, t, work.sums, call.scale);
  __syncwarp();
  const AttentionView& dq = p.dq_view;
  u16* const to =
      static_cast<u16*>(p.dq) + head.batch * dq.batch + head.head * dq.head + row0 * dq.row;
  store_rows<T, 16>(q_rows, to, dq.row, left, lane);
}

}  // namespace vitune
