// templates/attention/forward_sm90.cuh -- Fused attention forward on wgmma, for sm_90a.
//
// The two schedules of forward_sm80.cuh with warpgroups in the place of warps:
//   streaming  a CTA owns 64 query rows per warpgroup; K and V pass by in kStages tiles;
//   resident   all of K and V of a head are loaded once, its rows are walked over 64 at a time.
// Operands are copied with cp.async into swizzled panels, so any stride and alignment will do.
#pragma once

#include "attention/config_sm90.cuh"
#include "attention/epilogue.cuh"
#include "attention/exact_rows.cuh"
#include "attention/group_attention.cuh"
#include "attention/params.cuh"
#include "attention/tile_scheduler.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// This thread's warp among the rows of its warpgroup.
__device__ __forceinline__ RowPlace group_place(int row0, const HeadPlace& head) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize % 4;
  return {row0 + 16 * warp, lane / 4, lane % 4, head.batch, head.head};
}

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
  load_panels<typename T::QueryTile, kGroupRows, kGroupThreads, T::kCopyBytes, 0>(
      tile, head.q + row0 * p.q_view.row, p.q_view.row, p.queries - row0, thread,
      [](int row) { return row; });
  clear_last_chunk<typename T::QueryTile, kGroupRows, kGroupThreads>(tile, thread);
}

// Stores the rows of this thread's warp through the group's query tile, which all four warps have
// finished reading. Whether they have to be computed again.
template <class T>
__device__ __forceinline__ bool store_group_rows(const AttentionParams& p, u32 tile,
                                                 GroupAttention<T>& group) {
  const bool again = group.outgrown();
  warpgroup_barrier<T>();
  const int warp = threadIdx.x / kWarpSize % 4;
  Epilogue<T>::store(p, group.place, tile + warp * T::kWarpRows * T::Rows::kPitch, group.o,
                     group.softmax);
  return again;
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
      load_panels<Tile, T::kBlockN, T::kThreads, T::kCopyBytes, T::kBlockN>(
          tile, from, row_stride, left, threadIdx.x, place);
    } else {
      load_panels<Tile, T::kBlockN, T::kThreads, T::kCopyBytes, 0>(tile, from, row_stride, left,
                                                                   threadIdx.x, place);
    }
  }
  __device__ __forceinline__ void load(int step) const {
    const int stage = step % T::kStages;
    load_tile<typename T::KeyTile>(keys + stage * T::KeyTile::kBytes, head.k, p.k_view.row, step);
    load_tile<typename T::ValueTile>(values + stage * T::ValueTile::kBytes, head.v, p.v_view.row,
                                     step);
  }

  // One step, by its place: every step checks what it must and no more.
  __device__ __forceinline__ void attend(GroupAttention<T>& group, int step, int group_row0) const {
    const int stage = step % T::kStages;
    const u32 k = keys + stage * T::KeyTile::kBytes, v = values + stage * T::ValueTile::kBytes;
    const int key0 = step * T::kBlockN, limit = total() - key0;
    const bool tail = limit < T::kBlockN;
    NoWaits nothing;
    if (T::kCausal && (tail || key0 + T::kBlockN > group_row0 + 1)) {
      group.template attend<T::kBlockN, true, true, false>(queries, k, v, 0, key0, limit, nothing);
    } else if (tail) {
      group.template attend<T::kBlockN, true, false, false>(queries, k, v, 0, key0, limit, nothing);
    } else {
      group.template attend<T::kBlockN, false, false, false>(queries, k, v, 0, key0, limit,
                                                             nothing);
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
  group.begin(p, group_place(row0, head));
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

// The values of a head: the first product with them waits for the copies.
template <class Wait>
struct ValuesArrive : NoWaits {
  Wait& wait;
  __device__ __forceinline__ explicit ValuesArrive(Wait& wait_for_values) : wait(wait_for_values) {}
  __device__ __forceinline__ void keys_read() { wait(); }
};

// All steps of one block of rows against the resident keys; `first` as in attend(), for the first
// step.
template <class T, class Tiles>
__device__ __forceinline__ void resident_group_steps(GroupAttention<T>& group, u32 queries,
                                                     u32 keys, u32 values, int last_row,
                                                     Tiles& first) {
  using Keys = typename T::Keys;
  constexpr int kLast = Keys::kCount - 1;
  constexpr bool kTail = Keys::kTailKeys != Keys::kTailWidth;
  NoWaits later;
  if constexpr (kLast == 0) {
    group.template attend<Keys::kTailWidth, kTail, T::kCausal, true>(queries, keys, values, 0, 0,
                                                                     Keys::kTailKeys, first);
  } else {
    group.template attend<T::kBlockN, false, T::kCausal, true>(queries, keys, values, 0, 0,
                                                               T::kBlockN, first);
#pragma unroll 1
    for (int step = 1; step < kLast; ++step) {
      const int key0 = step * T::kBlockN;
      if (T::kCausal && key0 > last_row) return;
      group.template attend<T::kBlockN, false, T::kCausal, false>(queries, keys, values, key0, key0,
                                                                  T::kBlockN, later);
    }
    constexpr int kKey0 = kLast * T::kBlockN;
    if (T::kCausal && kKey0 > last_row) return;
    group.template attend<Keys::kTailWidth, kTail, T::kCausal, false>(
        queries, keys, values, kKey0, kKey0, Keys::kTailKeys, later);
  }
}

template <class T>
__device__ __forceinline__ void load_resident(const AttentionParams& p, const HeadPlace& head,
                                              u32 keys, u32 values, int thread) {
  const auto place = [](int row) { return place_of_key<T, T::kKeyRows>(row); };
  load_panels<typename T::KeyTile, T::kKeyRows, T::kHeadThreads, T::kCopyBytes, T::kKeys>(
      keys, head.k, p.k_view.row, T::kKeys, thread, place);
  clear_last_chunk<typename T::KeyTile, T::kKeyRows, T::kHeadThreads>(keys, thread);
  copy_commit();
  load_panels<typename T::ValueTile, T::kValueRows, T::kHeadThreads, T::kCopyBytes, T::kKeys>(
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
  ValuesArrive<decltype(wait_values)> first_step(wait_values);

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
    group.begin(p, group_place(row0, head));
    resident_group_steps(group, rows, keys, values, row0 + kGroupRows - 1, first_step);
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
    for_each_item<T>(p, [&](int item) { again |= resident_group_item<T>(p, shared, item, group); });
  } else {
    for_each_item<T>(p, [&](int item) { again |= streaming_group_item<T>(p, shared, item); });
  }
  if constexpr (T::kHoldsReference) {
    const int rows = threadIdx.x % T::kHeadThreads / kGroupThreads * kGroupRows;
    if (again) compute_items_again<T>(p, threadIdx.x / T::kHeadThreads, rows, group_place);
  }
}

}  // namespace vitune
