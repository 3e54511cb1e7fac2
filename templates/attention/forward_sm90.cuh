// templates/attention/forward_sm90.cuh -- Fused attention forward on wgmma, for sm_90a.
//
// The two schedules of forward_sm80.cuh with warpgroups in the place of warps:
//   streaming  a CTA owns 64 query rows per warpgroup; K and V pass by in kStages tiles;
//   resident   all of K and V of a head are loaded once, its rows are walked over 64 at a time.
// Operands are copied with cp.async into swizzled tiles, so any stride and alignment will do.
#pragma once

#include "attention/config_sm90.cuh"
#include "attention/epilogue.cuh"
#include "attention/group_attention.cuh"
#include "attention/overflow_fallback.cuh"
#include "attention/params.cuh"
#include "attention/tile_scheduler.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// Barrier of this thread's warpgroup alone.
template <class T>
__device__ __forceinline__ void warpgroup_barrier() {
  group_barrier<T::kGroups, kGroupThreads>(threadIdx.x / kGroupThreads);
}

// Starts the copy of one warpgroup's query rows.
template <class T>
__device__ __forceinline__ void load_group_queries(const AttentionParams& p, const HeadPlace& head,
                                                   int row0, u32 tile) {
  const int thread = threadIdx.x % kGroupThreads;
  cp_async_tile<typename T::QueryTile, kGroupRows, kGroupThreads, T::kCopyBytes, 0>(
      tile, head.q + row0 * p.q_view.row, p.q_view.row, p.queries - row0, thread,
      [](int row) { return row; });
  clear_last_chunk<typename T::QueryTile, kGroupRows, kGroupThreads>(tile, thread);
}

// Stores the rows of this thread's warp through the group's query tile, which all four warps have
// finished reading. Whether they have to be computed again.
template <class T>
__device__ __forceinline__ bool store_group_rows(const AttentionParams& p, u32 tile,
                                                 GroupAttention<T>& group) {
  const bool again = group.overflowed();
  warpgroup_barrier<T>();
  const int warp = threadIdx.x / kWarpSize % 4;
  Epilogue<T>::store(p, group.place, tile + warp * T::kWarpRows * T::Rows::kPitch, group.o,
                     group.softmax);
  return again;
}

// One step over kWidth keys from key0 on, of which `limit` exist; `keys` and `values` are their
// first rows in shared memory. kTail: fewer than kWidth exist. kDiagonal: some row does not see all
// of them. kFirst: the output is overwritten. wait_for_values() runs before the values are read.
template <class T, int kWidth, bool kTail, bool kDiagonal, bool kFirst, class Wait>
__device__ __forceinline__ void step(GroupAttention<T>& group, u32 queries, u32 keys, u32 values,
                                     int key0, int limit, Wait&& wait_for_values) {
  typename GroupAttention<T>::Scores s;
  typename GroupAttention<T>::template Weights<kWidth> weights;
  group.template fetch_operands<kWidth, kTail>(key0, limit);
  group.template start_scores<kWidth>(s, queries, keys);
  wgmma_wait<0>();
  wait_for_values();
  group.template weigh<kWidth, kTail, kDiagonal, kFirst>(weights, s, key0, limit);
  group.template start_output<kWidth, kFirst>(weights, values);
  wgmma_wait<0>();
}

// ----------------------------------------------------------------------------------- streaming

template <class T>
struct GroupStream {
  const AttentionParams& p;
  const HeadPlace& head;
  const u32 queries, keys, values;  // shared addresses; of the first stage

  __device__ __forceinline__ int total() const { return T::kKeys > 0 ? T::kKeys : p.keys; }

  template <class Tile>
  __device__ __forceinline__ void load_tile(u32 tile, const u16* source, i64 row_stride,
                                            int step) const {
    const int key0 = step * T::kBlockN, left = total() - key0;
    const u16* from = source + key0 * row_stride;
    const auto place = [](int row) { return place_of_key<T, T::kBlockN>(row); };
    if (left >= T::kBlockN) {
      cp_async_tile<Tile, T::kBlockN, T::kThreads, T::kCopyBytes, T::kBlockN>(
          tile, from, row_stride, left, threadIdx.x, place);
    } else {
      cp_async_tile<Tile, T::kBlockN, T::kThreads, T::kCopyBytes, 0>(tile, from, row_stride, left,
                                                                     threadIdx.x, place);
    }
  }
  __device__ __forceinline__ void load(int step) const {
    const int stage = step % T::kStages;
    load_tile<typename T::KeyTile>(keys + stage * T::KeyTile::kBytes, head.k, p.k_view.row, step);
    load_tile<typename T::ValueTile>(values + stage * T::ValueTile::kBytes, head.v, p.v_view.row,
                                     step);
  }

  // One step: it checks only what can happen at its place.
  __device__ __forceinline__ void attend(GroupAttention<T>& group, int index,
                                         int group_row0) const {
    const int stage = index % T::kStages;
    const u32 k = keys + stage * T::KeyTile::kBytes, v = values + stage * T::ValueTile::kBytes;
    const int key0 = index * T::kBlockN, limit = total() - key0;
    const bool tail = limit < T::kBlockN;
    const auto no_wait = [] {};
    if (T::kCausal && (tail || key0 + T::kBlockN > group_row0 + 1)) {
      step<T, T::kBlockN, true, true, false>(group, queries, k, v, key0, limit, no_wait);
    } else if (tail) {
      step<T, T::kBlockN, true, false, false>(group, queries, k, v, key0, limit, no_wait);
    } else {
      step<T, T::kBlockN, false, false, false>(group, queries, k, v, key0, limit, no_wait);
    }
  }
};

// Zeros, in every stage, what products read and copies never write.
template <class T>
__device__ __forceinline__ void clear_stages(u32 keys) {
#pragma unroll
  for (int stage = 0; stage < T::kStages; ++stage) {
    clear_last_chunk<typename T::KeyTile, T::kKeyRows, T::kThreads>(
        keys + stage * T::KeyTile::kBytes, threadIdx.x);
  }
}

// True if rows of this warp have to be computed again.
template <class T>
__device__ __forceinline__ bool streaming_group_item(const AttentionParams& p, u32 shared,
                                                     int item) {
  const StreamingItem<T> at(p, item);
  const HeadPlace head(p, at.head_index);
  const int warpgroup = threadIdx.x / kGroupThreads;
  const int row0 = at.row0 + warpgroup * kGroupRows;
  const bool active = row0 < p.queries;
  const u32 queries = shared + warpgroup * T::kQueryBytes;
  const u32 keys = shared + T::kGroups * T::kQueryBytes;
  const GroupStream<T> stream{p, head, queries, keys, keys + T::kKeyBytes};
  const int seen = T::kCausal ? min(stream.total(), at.row0 + T::kBlockM) : stream.total();
  const int steps = ceil_div(seen, T::kBlockN);

  if (active) load_group_queries<T>(p, head, row0, queries);
  clear_stages<T>(keys);
#pragma unroll
  for (int step = 0; step + 1 < T::kStages; ++step) {
    if (step < steps) stream.load(step);
    copy_commit();
  }
  GroupAttention<T> group;
  group.begin(p, group_rows(row0, head));
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<T::kStages - 2>();
    fence_proxy_async();
    __syncthreads();  // this step's tiles are there, the last step's have been read
    const int ahead = step + T::kStages - 1;
    if (ahead < steps) stream.load(ahead);
    copy_commit();
    if (active) stream.attend(group, step, row0);
  }
  return active && store_group_rows(p, queries, group);
}

// ------------------------------------------------------------------------------------ resident

// All steps of one block of rows against the resident keys. The first step waits for the values.
template <class T, class Wait>
__device__ __forceinline__ void resident_group_steps(GroupAttention<T>& group, u32 queries,
                                                     u32 keys, u32 values, int last_row,
                                                     Wait&& wait_for_values) {
  using Keys = typename T::Keys;
  constexpr int kLast = Keys::kCount - 1;
  constexpr bool kTail = Keys::kTailKeys != Keys::kTailWidth;
  const auto no_wait = [] {};
  if constexpr (kLast == 0) {
    step<T, Keys::kTailWidth, kTail, T::kCausal, true>(group, queries, keys, values, 0,
                                                       Keys::kTailKeys, wait_for_values);
  } else {
    step<T, T::kBlockN, false, T::kCausal, true>(group, queries, keys, values, 0, T::kBlockN,
                                                 wait_for_values);
#pragma unroll 1
    for (int index = 1; index < kLast; ++index) {
      const int key0 = index * T::kBlockN;
      if (T::kCausal && key0 > last_row) return;
      step<T, T::kBlockN, false, T::kCausal, false>(group, queries, keys + key0 * T::kSwizzle,
                                                    values + key0 * T::kSwizzle, key0, T::kBlockN,
                                                    no_wait);
    }
    constexpr int kKey0 = kLast * T::kBlockN;
    if (T::kCausal && kKey0 > last_row) return;
    step<T, Keys::kTailWidth, kTail, T::kCausal, false>(group, queries, keys + kKey0 * T::kSwizzle,
                                                        values + kKey0 * T::kSwizzle, kKey0,
                                                        Keys::kTailKeys, no_wait);
  }
}

template <class T>
__device__ __forceinline__ void load_resident(const AttentionParams& p, const HeadPlace& head,
                                              u32 keys, u32 values, int thread) {
  const auto place = [](int row) { return place_of_key<T, T::kKeyRows>(row); };
  cp_async_tile<typename T::KeyTile, T::kKeyRows, T::kHeadThreads, T::kCopyBytes, T::kKeys>(
      keys, head.k, p.k_view.row, T::kKeys, thread, place);
  clear_last_chunk<typename T::KeyTile, T::kKeyRows, T::kHeadThreads>(keys, thread);
  copy_commit();
  cp_async_tile<typename T::ValueTile, T::kValueRows, T::kHeadThreads, T::kCopyBytes, T::kKeys>(
      values, head.v, p.v_view.row, T::kKeys, thread, place);
  copy_commit();
}

// True if rows of this warp have to be computed again.
template <class T>
__device__ __forceinline__ bool resident_group_item(const AttentionParams& p, u32 shared, int item,
                                                    GroupAttention<T>& group) {
  const int head_slot = threadIdx.x / T::kHeadThreads;
  const int thread = threadIdx.x % T::kHeadThreads;
  const int warpgroup = thread / kGroupThreads;
  const ResidentItem<T> at(item, head_slot);
  if (at.head_index >= p.batch * p.heads) return false;  // all warps of a head, with its barriers
  const HeadPlace head(p, at.head_index);
  const u32 base = shared + head_slot * T::kHeadBytes;
  const u32 queries = base + warpgroup * T::kQueryBuffers * T::kQueryBytes;
  const u32 keys = base + T::kHeadGroups * T::kQueryBuffers * T::kQueryBytes;
  const u32 values = keys + T::kKeyBytes;
  const int stride = T::kRowSplit * T::kBlockM;
  int row0 = at.split * T::kBlockM + warpgroup * kGroupRows;

  if (row0 < p.queries) load_group_queries<T>(p, head, row0, queries);
  load_resident<T>(p, head, keys, values, thread);
  const auto head_barrier = [&] {
    fence_proxy_async();
    group_barrier<T::kHeadsPerCta, T::kHeadThreads>(head_slot);
  };
  copy_wait<1>();
  head_barrier();
  bool values_ready = false;
  auto wait_values = [&] {
    if (values_ready) return;
    copy_wait<0>();
    head_barrier();
    values_ready = true;
  };

  bool again = false;
  int buffer = 0;
#pragma unroll 1
  for (; row0 < p.queries; row0 += stride) {
    const u32 rows = queries + buffer * T::kQueryBytes;
    const int next = row0 + stride;
    // With two buffers the next queries arrive while these are worked on.
    if (T::kStages > 1 && next < p.queries) {
      buffer ^= 1;
      load_group_queries<T>(p, head, next, queries + buffer * T::kQueryBytes);
      copy_commit();
    }
    group.begin(p, group_rows(row0, head));
    resident_group_steps(group, rows, keys, values, row0 + kGroupRows - 1, wait_values);
    again |= store_group_rows(p, rows, group);
    if (T::kStages == 1 && next < p.queries) {
      warpgroup_barrier<T>();  // the other warps' staged rows have left
      load_group_queries<T>(p, head, next, rows);
      copy_commit();
    }
    copy_wait<0>();
    fence_proxy_async();
    warpgroup_barrier<T>();
  }
  wait_values();  // a warpgroup without rows still takes part in the barrier
  return again;
}

template <class Config>
__device__ __forceinline__ void forward(const AttentionParams& p) {
  using T = GroupTraits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  bool again = false;
  if constexpr (T::kResident) {
    GroupAttention<T> group;
#pragma unroll 1
    for (int item = blockIdx.x; !T::kPersistent || item < p.items; item += gridDim.x) {
      if (item != int(blockIdx.x)) __syncthreads();  // shared memory may still be read
      again |= resident_group_item<T>(p, shared, item, group);
      if constexpr (!T::kPersistent) break;
    }
  } else {
#pragma unroll 1
    for (int item = blockIdx.x; !T::kPersistent || item < p.items; item += gridDim.x) {
      if (item != int(blockIdx.x)) __syncthreads();  // shared memory may still be read
      again |= streaming_group_item<T>(p, shared, item);
      if constexpr (!T::kPersistent) break;
    }
  }
  if constexpr (T::kHoldsReference) {
    const int rows = threadIdx.x % T::kHeadThreads / kGroupThreads * kGroupRows;
    if (again) compute_items_again<T>(p, threadIdx.x / T::kHeadThreads, rows, group_rows);
  }
}

}  // namespace vitune
