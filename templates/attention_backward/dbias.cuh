// templates/attention_backward/dbias.cuh -- The bias's gradient with mma.sync: the third pass,
// and the kernel that adds its parts.
//
// A CTA owns a tile of one entry of the bias, sixteen query rows for each warp, and walks over the
// scores that share it: batch entries, and heads if all have one bias. Its sums stay in registers,
// so that nothing of the scores' size meets memory but dbias itself. Where tiles are few, the walk
// is cut into parts; a second kernel adds these in their order.
#pragma once

#include "attention_backward/geometry_dbias.cuh"
#include "attention_backward/products_sm80.cuh"
#include "collective/sums.cuh"
#include "primitives/sync.cuh"
#include "primitives/vector.cuh"

namespace vitune {

template <class C>
struct DbiasTraits : AttentionBackwardTraits<C> {
  static constexpr AttentionBackwardDbias kG = C::kDbiasGeometry;
  static constexpr int kThreads = kG.threads(), kBlock = kG.rows();
  static constexpr int kTileKeys = kG.keys, kStages = kG.stages;
  static constexpr int kChunk = kG.kChunkKeys, kChunks = kTileKeys / kChunk;
  static constexpr bool kQueryInRegisters = false;
  static constexpr int kRowBytes = kBlock * kG.pitch(), kKeyBytes = kTileKeys * kG.pitch();
  static_assert(kStages * 2 * (kRowBytes + kKeyBytes) == kG.shared_bytes());
};

// Where a CTA's tile is, and what it sums.
template <class T>
struct DbiasWork {
  int row0, key0;         // of the tile
  int first_batch, head;  // of the entry; of heads that share it, the first one
  int first, end;         // of the scores that share it, counted heads first
  int part;
  i64 entry;

  __device__ __forceinline__ explicit DbiasWork(const AttentionBackwardParams& p) {
    const int row_tiles = ceil_div(p.call.queries, T::kBlock);
    const int key_tiles = ceil_div(p.call.keys, T::kTileKeys);
    int rest = int(blockIdx.x);
    key0 = rest % key_tiles * T::kTileKeys;
    rest /= key_tiles;
    row0 = rest % row_tiles * T::kBlock;
    rest /= row_tiles;
    part = rest % p.parts;
    rest /= p.parts;
    entry = rest;
    head = rest % p.dbias_heads;
    first_batch = rest / p.dbias_heads;
    const i64 all = i64(p.sharing_batches) * p.sharing_heads;
    first = int(part * all / p.parts);
    end = int((part + 1) * all / p.parts);
    if (T::kCausal && key0 >= row0 + T::kBlock) end = first;  // no row of the tile sees a key
  }
  __device__ __forceinline__ int batch_of(const AttentionBackwardParams& p, int i) const {
    return first_batch + i / p.sharing_heads * p.dbias_batches;
  }
  __device__ __forceinline__ int head_of(const AttentionBackwardParams& p, int i) const {
    return head + i % p.sharing_heads;
  }
};

// The rows and keys of one batch entry and head in shared memory.
template <class T>
struct DbiasStages {
  const AttentionBackwardParams& p;
  const DbiasWork<T>& work;
  u32 shared;

  __device__ __forceinline__ u32 queries(int i) const {
    return shared + (i - work.first) % T::kStages * 2 * (T::kRowBytes + T::kKeyBytes);
  }
  __device__ __forceinline__ u32 gradients(int i) const { return queries(i) + T::kRowBytes; }
  __device__ __forceinline__ u32 keys(int i) const { return queries(i) + 2 * T::kRowBytes; }
  __device__ __forceinline__ u32 values(int i) const { return keys(i) + T::kKeyBytes; }

  template <int kRows>
  __device__ __forceinline__ void load_tile(u32 tile, const void* from, const AttentionView& view,
                                            int batch, int head, int first, int count) const {
    load_rows<T::kHeadDim, kRows, T::kThreads, T::kCopyBytes, 0>(
        tile,
        static_cast<const u16*>(from) + batch * view.batch + head * view.head + first * view.row,
        view.row, count - first, threadIdx.x);
  }
  __device__ __forceinline__ void load(int i) const {
    const AttentionParams& call = p.call;
    const int batch = work.batch_of(p, i), head = work.head_of(p, i);
    const int kv_head = quotient(head, call.by_heads_per_kv);
    load_tile<T::kBlock>(queries(i), call.q, call.q_view, batch, head, work.row0, call.queries);
    load_tile<T::kBlock>(gradients(i), p.dout, p.dout_view, batch, head, work.row0, call.queries);
    load_tile<T::kTileKeys>(keys(i), call.k, call.k_view, batch, kv_head, work.key0, call.keys);
    load_tile<T::kTileKeys>(values(i), call.v, call.v_view, batch, kv_head, work.key0, call.keys);
  }
};

// A warp's rows of the tile.
template <class T>
struct DbiasWarp {
  const AttentionBackwardParams& p;
  const LaneOffsets<T> lanes;
  const int lane;
  ScoreOperands<T, T::kChunk> operands;
  RowStatistics<T> rows;
  float sums[T::kTileKeys / 8][4];

  __device__ __forceinline__ DbiasWarp(const AttentionBackwardParams& params, int this_lane)
      : p(params), lanes(this_lane), lane(this_lane) {
    clear(sums);
  }

  // One batch entry's and head's share.
  __device__ __forceinline__ void add(int batch, int head, int row0, int first_key, u32 query_rows,
                                      u32 gradient_rows, u32 keys, u32 values) {
    const int g = lane / 4, t = lane % 4;
    const AttentionParams& call = p.call;
    const i64 first = (i64(batch) * call.heads + head) * call.queries + row0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      const bool is_there = row0 + row < call.queries;
      rows.set(half, is_there ? __ldg(call.lse + first + row) : 0.f,
               is_there ? __ldg(p.delta + first + row) : 0.f, is_there);
    }
    operands.begin(call, {row0, g, t, batch, head});
    Queries<T> queries, gradients;
    queries.init(query_rows, lane);
    gradients.init(gradient_rows, lane);
#pragma unroll
    for (int chunk = 0; chunk < T::kChunks; ++chunk) {
      const u32 offset = chunk * T::kChunk * T::kPitch;
      const int key0 = first_key + chunk * T::kChunk;
      if (key0 >= call.keys || (T::kCausal && key0 > row0 + 15)) break;
      if (is_edge<T, T::kChunk>(call, row0, key0)) {
        add_chunk<true>(chunk, key0, queries, gradients, keys + offset, values + offset);
      } else {
        add_chunk<false>(chunk, key0, queries, gradients, keys + offset, values + offset);
      }
    }
  }

 private:
  template <bool kEdge>
  __device__ __forceinline__ void add_chunk(int chunk, int key0, const Queries<T>& queries,
                                            const Queries<T>& gradients, u32 keys, u32 values) {
    const int limit = p.call.keys - key0;
    operands.template fetch<kEdge>(key0, limit);
    ScoreTile<T::kChunk> s, ds;
    multiply_rows<T>(s, queries, KeyOperand<T, T::kChunk, false>(keys, lanes), lanes);
    multiply_rows<T>(ds, gradients, KeyOperand<T, T::kChunk, false>(values, lanes), lanes);
    operands.template weigh<kEdge>(s, ds, rows, p.call.scale, key0, limit);
#pragma unroll
    for (int j = 0; j < T::kChunk / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[chunk * T::kChunk / 8 + j][i] += ds[0][j][i];
    }
  }
};

// One sum of dbias, or of a part of it.
template <class T>
__device__ __forceinline__ void store_dbias(const AttentionBackwardParams& p, int part, i64 at,
                                            float value) {
  const float one[1] = {value};
  if (p.parts > 1) {
    const i64 all = i64(p.dbias_batches) * p.dbias_heads * p.call.queries * p.call.keys;
    p.partials[part * all + at] = value;
  } else {
    using Number = Vector<T::kDbias, 1>;
    store_piece(Number::address(p.dbias, at), Number::pack(one));
  }
}

template <class C>
__device__ void attention_backward_dbias(const AttentionBackwardParams& p) {
  using T = DbiasTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const AttentionParams& call = p.call;
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  const DbiasWork<T> work(p);
  const DbiasStages<T> stages{p, work, shared};
  const int row0 = work.row0 + 16 * warp;
  const bool is_active = row0 < call.queries;
#pragma unroll
  for (int ahead = 0; ahead < max_of(T::kStages - 1, 1); ++ahead) {
    if (work.first + ahead < work.end) stages.load(work.first + ahead);
    copy_commit();
  }
  DbiasWarp<T> sums(p, lane);
  const u32 warp_rows = 16 * warp * T::kPitch;
#pragma unroll 1
  for (int i = work.first; i < work.end; ++i) {
    copy_wait<max_of(T::kStages - 2, 0)>();
    __syncthreads();  // these tiles are there, the last ones have been read
    if (T::kStages > 1) {
      if (i + T::kStages - 1 < work.end) stages.load(i + T::kStages - 1);
      copy_commit();
    }
    if (is_active) {
      sums.add(work.batch_of(p, i), work.head_of(p, i), row0, work.key0,
               stages.queries(i) + warp_rows, stages.gradients(i) + warp_rows, stages.keys(i),
               stages.values(i));
    }
    if (T::kStages == 1 && i + 1 < work.end) {
      __syncthreads();
      stages.load(i + 1);
      copy_commit();
    }
  }
#pragma unroll
  for (int j = 0; j < T::kTileKeys / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + lane / 4 + 8 * (i / 2);
      const int key = work.key0 + key_of<T, T::kTileKeys / 8>(j, lane % 4, i % 2);
      if (row >= call.queries || key >= call.keys) continue;
      store_dbias<T>(p, work.part, (work.entry * call.queries + row) * call.keys + key,
                     sums.sums[j][i]);
    }
  }
}

template <class C>
__device__ void attention_backward_dbias_finish(const AttentionBackwardParams& p) {
  using Number = Vector<C::kDbias, 1>;
  const i64 all = i64(p.dbias_batches) * p.dbias_heads * p.call.queries * p.call.keys;
  const i64 threads = i64(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += threads) {
    const float* from = p.partials + at - all;
    const float sum[1] = {sum_in_order<32>(p.parts, [&] { return from += all; })};
    store_piece(Number::address(p.dbias, at), Number::pack(sum));
  }
}

}  // namespace vitune
