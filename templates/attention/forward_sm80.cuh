// templates/attention/forward_sm80.cuh -- Fused attention forward on mma.sync, for sm_80 and later.
//
// Two schedules over the same warp-level step (warp_attention.cuh):
//   streaming  a CTA owns kBlockM query rows; K and V pass by in kStages tiles of kBlockN keys;
//   resident   all of K and V of a head are loaded once and its rows are walked over, each warp on
//              its own: no barrier after the loads. For the token counts of vision transformers.
// docs/kernels.md draws both pipelines.
#pragma once

#include "attention/config.cuh"
#include "attention/epilogue.cuh"
#include "attention/key_split.cuh"
#include "attention/overflow_fallback.cuh"
#include "attention/params.cuh"
#include "attention/tile_scheduler.cuh"
#include "attention/warp_attention.cuh"
#include "collective/cp_async_tile.cuh"
#include "primitives/sync.cuh"

namespace vitune {

__device__ __forceinline__ RowPlace row_place(int row0, const HeadPlace& head) {
  const int lane = threadIdx.x % kWarpSize;
  return {row0, lane / 4, lane % 4, head.batch, head.head};
}

// Starts the copy of one warp's query rows.
template <class T>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const HeadPlace& head,
                                             int row0, u32 rows) {
  load_rows<T::kHeadDim, T::kWarpRows, kWarpSize, T::kCopyBytes, 0>(
      rows, head.q + row0 * p.q_view.row, p.q_view.row, p.queries - row0, threadIdx.x % kWarpSize);
}

// ----------------------------------------------------------------------------------- streaming

// The K and V tiles of one CTA in shared memory and how they are filled: a round of kKeySplit steps
// at a time.
template <class T>
struct StreamedTiles {
  const AttentionParams& p;
  const HeadPlace& head;
  const u32 keys, values;  // shared addresses of the first stage
  const int steps;

  __device__ __forceinline__ void load(u32 tile, const u16* source, const AttentionView& view,
                                       int step) const {
    const int key0 = step * T::kBlockN;
    const int left = (T::kKeys > 0 ? T::kKeys : p.keys) - key0;
    const u16* from = source + key0 * view.row;
    if (left >= T::kBlockN) {
      load_rows<T::kHeadDim, T::kBlockN, T::kThreads, T::kCopyBytes, T::kBlockN>(
          tile, from, view.row, left, threadIdx.x);
    } else {
      load_rows<T::kHeadDim, T::kBlockN, T::kThreads, T::kCopyBytes, 0>(tile, from, view.row, left,
                                                                        threadIdx.x);
    }
  }
  __device__ __forceinline__ void load_round(u32 tiles, const u16* source,
                                             const AttentionView& view, int round,
                                             int stage) const {
#pragma unroll
    for (int i = 0; i < T::kKeySplit; ++i) {
      const int step = round * T::kKeySplit + i;
      if (T::kKeySplit > 1 && step >= steps) break;
      load(tiles + (stage * T::kKeySplit + i) * T::kTileBytes, source, view, step);
    }
  }
  __device__ __forceinline__ void load_keys(int round, int stage) const {
    load_round(keys, head.k, p.k_view, round, stage);
  }
  __device__ __forceinline__ void load_values(int round, int stage) const {
    load_round(values, head.v, p.v_view, round, stage);
  }
  __device__ __forceinline__ int rounds() const { return ceil_div(steps, T::kKeySplit); }
};

// Steps of keys that the rows from row0 on attend to.
template <class T>
__device__ __forceinline__ int step_count(const AttentionParams& p, int row0) {
  const int keys = T::kKeys > 0 ? T::kKeys : p.keys;
  const int seen = T::kCausal ? min(keys, row0 + T::kBlockM) : keys;
  return ceil_div(seen, T::kBlockN);
}

// The main loop of a streaming CTA: all steps of keys, each of which checks what it must and no
// more. With one stage K and V are separate copies, each issued as soon as its tile has been read.
// With several, K and V of a round are one copy, kStages - 1 rounds ahead, and a round has one
// barrier.
template <class T>
__device__ __forceinline__ void stream_steps(WarpAttention<T>& warp, const AttentionParams& p,
                                             const StreamedTiles<T>& tiles, int share,
                                             bool active) {
  constexpr bool kSingle = T::kStages == 1;
  const u32 share_offset = share * T::kTileBytes;
#pragma unroll 1
  for (int round = 0; round < tiles.rounds(); ++round) {
    copy_wait<max_of(T::kStages - 2, 0)>();
    __syncthreads();  // this round's tiles (one stage: its keys) are there, the last one's are read
    const int ahead = round + T::kStages - 1;
    if constexpr (kSingle) {
      tiles.load_values(round, 0);
    } else if (ahead < tiles.rounds()) {
      tiles.load_keys(ahead, ahead % T::kStages);
      tiles.load_values(ahead, ahead % T::kStages);
    }
    copy_commit();
    const auto between = [&] {
      if constexpr (kSingle) {
        copy_wait<0>();
        // Values are there, keys have been read. Warps without a step come from another place.
        group_barrier<1, T::kThreads>(0);
        if (round + 1 < tiles.rounds()) tiles.load_keys(round + 1, 0);
        copy_commit();
      }
    };

    const int step = round * T::kKeySplit + share;
    if (active && (T::kKeySplit == 1 || step < tiles.steps)) {
      const u32 offset =
          kSingle ? share_offset : (round % T::kStages * T::kKeySplit + share) * T::kTileBytes;
      const u32 keys = tiles.keys + offset, values = tiles.values + offset;
      const int total = T::kKeys > 0 ? T::kKeys : p.keys;
      const int key0 = step * T::kBlockN;
      const int limit = total - key0;
      const bool tail = limit < T::kBlockN;
      if constexpr (T::kCausal) {
        const bool diagonal = key0 + T::kBlockN > warp.place.row0 + 1;
        if (diagonal || tail) {
          warp.template attend<T::kBlockN, true, true, false>(keys, values, key0, limit, between);
          continue;
        }
      } else if (tail) {
        warp.template attend<T::Keys::kTailWidth, true, false, false>(keys, values, key0, limit,
                                                                      between);
        continue;
      }
      warp.template attend<T::kBlockN, false, false, false>(keys, values, key0, limit, between);
    } else {
      between();
    }
  }
}

// Starts the copies that run ahead of the first step: one commit group per stage.
template <class T>
__device__ __forceinline__ void fill_stages(const StreamedTiles<T>& tiles) {
  tiles.load_keys(0, 0);
  if constexpr (T::kStages > 1) tiles.load_values(0, 0);
  copy_commit();
#pragma unroll
  for (int stage = 1; stage + 1 < T::kStages; ++stage) {
    if (stage < tiles.rounds()) tiles.load_keys(stage, stage);
    if (stage < tiles.rounds()) tiles.load_values(stage, stage);
    copy_commit();
  }
}

// True if this warp's rows have to be computed again.
template <class T>
__device__ __forceinline__ bool streaming_item(const AttentionParams& p, u32 shared, int item) {
  const StreamingItem<T> at(p, item);
  const HeadPlace head(p, at.head_index);
  const int warp_index = threadIdx.x / kWarpSize;
  const KeySplit<T> split(warp_index);
  const int row0 = at.row0 + split.row_warp * T::kWarpRows;
  const bool active = row0 < p.queries;
  const u32 query_rows = shared + warp_index * T::kQueryBytes;
  const u32 keys = shared + T::kWarps * T::kQueryBytes;
  const StreamedTiles<T> tiles{p, head, keys, keys + T::kKeyBytes, step_count<T>(p, at.row0)};

  if (active) load_queries<T>(p, head, row0, query_rows);
  copy_commit();
  fill_stages(tiles);
  copy_wait<max_of(T::kStages - 1, 1)>();  // the queries, which only this warp reads
  __syncwarp();

  WarpAttention<T> warp(threadIdx.x % kWarpSize);
  if (active) warp.begin(p, row_place(row0, head), query_rows);
  stream_steps(warp, p, tiles, split.share, active);
  split.combine(warp, keys, active);
  if (!active || split.share != 0) return false;
  const bool again = warp.overflowed();
  Epilogue<T>::store(p, warp.place, query_rows, warp.o, warp.softmax);
  return again;
}

// ------------------------------------------------------------------------------------ resident

// All steps of one block of rows against the resident keys; `between` as in attend(), first step
// only.
template <class T, class Between>
__device__ __forceinline__ void resident_steps(WarpAttention<T>& warp, u32 keys, u32 values,
                                               Between&& between) {
  using Keys = typename T::Keys;
  constexpr int kLast = Keys::kCount - 1;
  constexpr bool kTail = Keys::kTailKeys != Keys::kTailWidth;
  const int last_row = warp.place.row0 + T::kWarpRows - 1;
  if constexpr (kLast > 0) {
    warp.template attend<T::kBlockN, false, T::kCausal, true>(keys, values, 0, T::kBlockN, between);
#pragma unroll 1
    for (int step = 1; step < kLast; ++step) {
      const int key0 = step * T::kBlockN;
      const u32 offset = step * T::kTileBytes;
      if (T::kCausal && key0 > last_row) return;
      warp.template attend<T::kBlockN, false, T::kCausal, false>(keys + offset, values + offset,
                                                                 key0, T::kBlockN, [] {});
    }
    if (T::kCausal && kLast * T::kBlockN > last_row) return;
  }
  constexpr u32 kOffset = kLast * T::kTileBytes;
  if constexpr (kLast > 0) {
    warp.template attend<Keys::kTailWidth, kTail, T::kCausal, false>(
        keys + kOffset, values + kOffset, kLast * T::kBlockN, Keys::kTailKeys, [] {});
  } else {
    warp.template attend<Keys::kTailWidth, kTail, T::kCausal, true>(keys, values, 0,
                                                                    Keys::kTailKeys, between);
  }
}

// True if some of this warp's rows have to be computed again.
template <class T>
__device__ __forceinline__ bool resident_item(const AttentionParams& p, u32 shared, int item,
                                              WarpAttention<T>& warp) {
  constexpr int kRows = (T::Keys::kCount - 1) * T::kBlockN + T::Keys::kTailWidth;
  const int group = threadIdx.x / T::kGroupThreads;
  const int thread = threadIdx.x % T::kGroupThreads;
  const int warp_index = thread / kWarpSize;
  const ResidentItem<T> at(item, group);
  if (at.head_index >= p.batch * p.heads) return false;  // a whole group, with its own barriers
  const HeadPlace head(p, at.head_index);
  const u32 base = shared + group * T::kGroupBytes;
  const u32 query_rows = base + warp_index * T::kQueryBuffers * T::kQueryBytes;
  const u32 keys = base + T::kGroupWarps * T::kQueryBuffers * T::kQueryBytes;
  const u32 values = keys + T::kKeyBytes;
  const int stride = T::kRowSplit * T::kBlockM;
  int row0 = at.split * T::kBlockM + warp_index * T::kWarpRows;

  if (row0 < p.queries) load_queries<T>(p, head, row0, query_rows);
  load_rows<T::kHeadDim, kRows, T::kGroupThreads, T::kCopyBytes, T::kKeys>(
      keys, head.k, p.k_view.row, T::kKeys, thread);
  copy_commit();
  load_rows<T::kHeadDim, kRows, T::kGroupThreads, T::kCopyBytes, T::kKeys>(
      values, head.v, p.v_view.row, T::kKeys, thread);
  copy_commit();
  copy_wait<1>();
  group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);
  bool values_ready = false;
  auto wait_values = [&] {
    if (values_ready) return;
    copy_wait<0>();
    group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);
    values_ready = true;
  };

  bool again = false;
  int buffer = 0;
#pragma unroll 1
  for (; row0 < p.queries; row0 += stride) {
    const u32 rows = query_rows + buffer * T::kQueryBytes;
    warp.begin(p, row_place(row0, head), rows);
    // With two buffers the next queries arrive while these are worked on.
    const int next = row0 + stride;
    if (T::kStages > 1 && next < p.queries) {
      buffer ^= 1;
      load_queries<T>(p, head, next, query_rows + buffer * T::kQueryBytes);
      copy_commit();
    }
    resident_steps(warp, keys, values, wait_values);
    again |= warp.overflowed();
    Epilogue<T>::store(p, warp.place, rows, warp.o, warp.softmax);
    if (T::kStages == 1 && next < p.queries) {
      load_queries<T>(p, head, next, rows);
      copy_commit();
    }
    copy_wait<0>();
    __syncwarp();
  }
  wait_values();  // a warp without rows still takes part in the barrier
  return again;
}

template <class Config>
__device__ __forceinline__ void forward(const AttentionParams& p) {
  using T = Traits<Config>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  bool again = false;
  if constexpr (T::kResident) {
    WarpAttention<T> warp(threadIdx.x % kWarpSize);
#pragma unroll 1
    for (int item = blockIdx.x; !T::kPersistent || item < p.items; item += gridDim.x) {
      if (item != int(blockIdx.x)) __syncthreads();  // shared memory may still be read
      again |= resident_item<T>(p, shared, item, warp);
      if constexpr (!T::kPersistent) break;
    }
  } else {
#pragma unroll 1
    for (int item = blockIdx.x; !T::kPersistent || item < p.items; item += gridDim.x) {
      if (item != int(blockIdx.x)) __syncthreads();  // shared memory may still be read
      again |= streaming_item<T>(p, shared, item);
      if constexpr (!T::kPersistent) break;
    }
  }
  if constexpr (T::kHoldsReference) {
    const int rows = threadIdx.x % T::kGroupThreads / kWarpSize * T::kWarpRows;
    if (again) compute_items_again<T>(p, threadIdx.x / T::kGroupThreads, rows, row_place);
  }
}

}  // namespace vitune
