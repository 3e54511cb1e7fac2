// templates/window_attention/windows_sm80.cuh -- Attention in the windows of an image, in place.
//
// q, k and v are read from the image, and the result is written there: the roll, the padding and
// the partition of Swin (Liu et al. 2021), and their reverse, are addresses of the copies. All of a
// (window, head) pair's rows are in shared memory; the steps are attention/warp_attention.cuh's.
#pragma once

#include "attention/warp_attention.cuh"
#include "collective/cp_async_tile.cuh"
#include "primitives/sync.cuh"
#include "window_attention/config.cuh"
#include "window_attention/window_place.cuh"

namespace vitune {

// Where the rows of a pair are in shared memory.
template <class T>
struct PairTiles {
  u32 queries, keys, values;
  __device__ __forceinline__ explicit PairTiles(u32 base)
      : queries(base),
        keys(base + T::kQueryRows * T::Rows::kPitch),
        values(keys + T::kKeyRows * T::Rows::kPitch) {}
};

// q, k and v of a pair, at this thread's chunk of a row. Their strides are the same.
template <class T>
struct PairSource {
  const char *q, *k, *v;
  const u16* padding;  // what is beyond an image, of q; null: zeros
  int pixel_bytes, padding_step;

  __device__ __forceinline__ PairSource(const WindowAttentionParams& p, const WindowPlace<T>& place,
                                        int column)
      : padding(nullptr), pixel_bytes(int(2 * p.call.q_view.row)), padding_step(0) {
    const i64 start =
        2 * (place.image * p.call.q_view.batch + place.head * p.call.q_view.head + column);
    q = static_cast<const char*>(p.call.q) + start;
    k = static_cast<const char*>(p.call.k) + start;
    v = static_cast<const char*>(p.call.v) + start;
    if (T::kPadded && p.padding != nullptr) {
      padding = static_cast<const u16*>(p.padding) + place.head * T::kHeadDim + column;
      padding_step = p.call.heads * T::kHeadDim;
    }
  }

  // Copies the chunk of one row of `from`, the first, second or third of q, k and v; pixel -1 is
  // padding. Where no row is there it becomes zeros.
  __device__ __forceinline__ void copy(u32 to, const char* from, int which, int pixel,
                                       bool there) const {
    const void* row = from + i64(pixel) * pixel_bytes;
    if (T::kPadded && pixel < 0) {
      there = there && padding != nullptr;
      row = padding + which * padding_step;
    }
    copy_chunk<16>(to, there ? row : from, there);
  }
};

// Starts the copy of a pair's rows. Those behind the last one become zeros: they meet weights of 0,
// and decide nothing about a warp's other rows.
template <class T>
__device__ __forceinline__ void load_pair(const WindowAttentionParams& p,
                                          const WindowPlace<T>& place, const PairTiles<T>& tiles,
                                          int thread) {
  using Rows = typename T::Rows;
  constexpr int kRowsPerPass = T::kGroupThreads / Rows::kChunks;
  constexpr int kRows = max_of(T::kQueryRows, T::kKeyRows);
  const int chunk = thread % Rows::kChunks, first = thread / Rows::kChunks;
  if (T::kGroupThreads % Rows::kChunks != 0 && first >= kRowsPerPass) return;
  const PairSource<T> source(p, place, chunk * 8);
#pragma unroll
  for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    const u32 at = row * Rows::kPitch + chunk * 16;
    const bool there = row < T::kKeys;
    const int pixel = there ? place.pixel(p, row) : 0;
    if (row < T::kQueryRows) source.copy(tiles.queries + at, source.q, 0, pixel, there);
    if (row < T::kKeyRows) {
      source.copy(tiles.keys + at, source.k, 1, pixel, there);
      source.copy(tiles.values + at, source.v, 2, pixel, there);
    }
  }
}

// All keys for the rows that the warp has begun.
template <class T>
__device__ __forceinline__ void attend_keys(WarpAttention<T>& warp, const PairTiles<T>& tiles) {
  using Keys = typename T::Keys;
  constexpr int kLast = Keys::kCount - 1;
  constexpr bool kTail = Keys::kTailKeys != Keys::kTailWidth;
  constexpr u32 kOffset = kLast * T::kTileBytes;
  if constexpr (kLast > 0) {
    warp.template attend<T::kBlockN, false, false, true>(tiles.keys, tiles.values, 0, T::kBlockN,
                                                         [] {});
#pragma unroll 1
    for (int step = 1; step < kLast; ++step) {
      const u32 offset = step * T::kTileBytes;
      warp.template attend<T::kBlockN, false, false, false>(
          tiles.keys + offset, tiles.values + offset, step * T::kBlockN, T::kBlockN, [] {});
    }
  }
  warp.template attend<Keys::kTailWidth, kTail, false, kLast == 0>(
      tiles.keys + kOffset, tiles.values + kOffset, kLast * T::kBlockN, Keys::kTailKeys, [] {});
}

// The output rows of one warp, normalised, by way of its query rows to their pixels.
template <class T>
__device__ __forceinline__ void store_rows(const WindowAttentionParams& p,
                                           const WindowPlace<T>& place, WarpAttention<T>& warp,
                                           u32 staging) {
  using Rows = typename T::Rows;
  constexpr int kRowsPerPass = kWarpSize / Rows::kChunks;
  __syncwarp();  // the staging rows may still be read as queries
#pragma unroll
  for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float lse;
      const float inverse = warp.softmax.finalize(r, half, lse);
      const int row = 16 * r + 8 * half + warp.place.g;
      const u32 to = staging + row * Rows::kPitch + 4 * warp.place.t;
#pragma unroll
      for (int j = 0; j < T::kHeadTiles; ++j) {
        store_shared(to + 16 * j, Element<T::kElement>::pack(warp.o[r][j][2 * half] * inverse,
                                                             warp.o[r][j][2 * half + 1] * inverse));
      }
    }
  }
  __syncwarp();
  const int lane = threadIdx.x % kWarpSize;
  const int chunk = lane % Rows::kChunks, first = lane / Rows::kChunks;
  if (kWarpSize % Rows::kChunks != 0 && first >= kRowsPerPass) return;
  u16* image = static_cast<u16*>(p.call.o) + place.image * p.call.o_view.batch +
               place.head * p.call.o_view.head + chunk * 8;
#pragma unroll
  for (int pass = 0; pass < ceil_div(T::kWarpRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass, index = warp.place.row0 + row;
    if (row >= T::kWarpRows || index >= T::kKeys) continue;
    const int pixel = place.pixel(p, index);
    if (T::kPadded && pixel < 0) continue;
    store_chunk<16>(image + pixel * p.call.o_view.row,
                    load_shared_16(staging + row * Rows::kPitch + chunk * 16));
  }
}

template <class T>
__device__ __forceinline__ void attend_pair(const WindowAttentionParams& p,
                                            const WindowPlace<T>& place, const PairTiles<T>& tiles,
                                            WarpAttention<T>& warp, int warp_index) {
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll 1
  for (int row0 = warp_index * T::kWarpRows; row0 < T::kKeys; row0 += T::kBlockM) {
    const u32 rows = tiles.queries + row0 * T::Rows::kPitch;
    warp.begin(p.call, {row0, lane / 4, lane % 4, place.window, place.head}, rows);
    attend_keys(warp, tiles);
    store_rows(p, place, warp, rows);
  }
}

template <class Config>
__device__ __forceinline__ void window_attention(const WindowAttentionParams& p) {
  using T = WindowTraits<Config>;
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  const int group = threadIdx.x / T::kGroupThreads, thread = threadIdx.x % T::kGroupThreads;
  const u32 base = shared_address(shared_memory) + group * T::kBuffers * T::kPairBytes;
  const int pairs = p.call.batch * p.call.heads, step = gridDim.x * T::kHeadsPerCta;
  int pair = blockIdx.x * T::kHeadsPerCta + group;
  if (pair >= pairs) return;  // a whole group, with its own barriers

  WarpAttention<T> warp(threadIdx.x % kWarpSize);
  const auto load = [&](int which, int buffer) {
    load_pair(p, WindowPlace<T>(p, which), PairTiles<T>(base + buffer * T::kPairBytes), thread);
  };
  int buffer = 0;
  load(pair, buffer);
  copy_commit();
#pragma unroll 1
  while (true) {
    const int next = pair + step;
    if constexpr (T::kBuffers == 2) {
      if (next < pairs) load(next, buffer ^ 1);
      copy_commit();
    }
    copy_wait<T::kBuffers - 1>();
    group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);  // all rows of the pair are there
    attend_pair(p, WindowPlace<T>(p, pair), PairTiles<T>(base + buffer * T::kPairBytes), warp,
                thread / kWarpSize);
    if (!T::kPersistent || next >= pairs) return;
    group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);  // and have been read
    if constexpr (T::kBuffers == 1) {
      load(next, buffer);
      copy_commit();
    } else {
      buffer ^= 1;
    }
    pair = next;
  }
}

}  // namespace vitune
