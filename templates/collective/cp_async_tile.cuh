// templates/collective/cp_async_tile.cuh -- Fills tiles of shared memory by cp.async.
#pragma once

#include "collective/smem_tile.cuh"
#include "primitives/copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Copies kRows rows of a strided global matrix into padded rows with kThreads threads. Rows from
// `valid` on become zeros; the first kSure rows are known to be valid, so nothing is computed to
// find out. Completes with the caller's commit group.
template <int kColumns, int kRows, int kThreads, int kCopyBytes, int kSure>
__device__ __forceinline__ void load_rows(u32 tile, const u16* source, i64 row_stride, int valid,
                                          int thread) {
  using Rows = TileRows<kColumns>;
  constexpr int kRowsPerPass = kThreads / Rows::kChunks;
  constexpr int kPasses = ceil_div(kRows, kRowsPerPass);
  static_assert(kRowsPerPass >= 1, "a row must not have more chunks than there are threads");
  const int chunk = thread % Rows::kChunks;
  const int first = thread / Rows::kChunks;
  if (kThreads % Rows::kChunks != 0 && first >= kRowsPerPass) return;
  const u16* from = source + first * row_stride + chunk * 8;
  u32 to = tile + first * Rows::kPitch + chunk * 16;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = first + pass * kRowsPerPass;
    const bool valid_row = (pass + 1) * kRowsPerPass <= kSure || row < valid;
    if ((pass + 1) * kRowsPerPass <= kRows || row < kRows) {
      copy_chunk<kCopyBytes>(to, valid_row ? from : source, valid_row);
    }
    from += kRowsPerPass * row_stride;
    to += kRowsPerPass * Rows::kPitch;
  }
}

// Copies kRows rows of a strided global matrix into a tile with kThreads threads; kPlace maps a
// row's number to its place in the tile. Rows from `valid` on become zeros; the first kSure rows
// are known to be valid. Completes with the caller's commit group.
template <class Tile, int kRows, int kThreads, int kCopyBytes, int kSure, class Place>
__device__ __forceinline__ void cp_async_tile(u32 tile, const u16* source, i64 row_stride,
                                              int valid, int thread, Place&& place) {
  constexpr int kRowsPerPass = kThreads / Tile::kChunks;
  static_assert(kRowsPerPass >= 1, "a row must not have more chunks than there are threads");
  const int chunk = thread % Tile::kChunks;
  const int first = thread / Tile::kChunks;
  if (kThreads % Tile::kChunks != 0 && first >= kRowsPerPass) return;
  const u16* from = source + first * row_stride + chunk * 8;
#pragma unroll
  for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    const bool valid_row = (pass + 1) * kRowsPerPass <= kSure || row < valid;
    if ((pass + 1) * kRowsPerPass <= kRows || row < kRows) {
      copy_chunk<kCopyBytes>(tile + Tile::offset(place(row), chunk), valid_row ? from : source,
                             valid_row);
    }
    from += kRowsPerPass * row_stride;
  }
}

// Some columns of the same, from 16-byte chunk kFirst on: threads side by side take the chunks of a
// row, as many rows at once as leave each thread's place within eight rows as it is. So all a
// thread needs per row is an addition.
template <class Tile, int kFirst, int kCount, int kRows, int kPermuted, int kThreads,
          int kCopyBytes, class Place>
__device__ __forceinline__ void stream_columns(u32 tile, const u16* source, i64 row_stride,
                                               int valid, int thread, Place&& place) {
  constexpr int kLanes = kCount > 4 ? 8 : kCount > 2 ? 4 : kCount;  // per row; some may idle
  constexpr int kRowsPerPass = kThreads / kLanes;
  static_assert(kCount <= 8 && kRowsPerPass % 8 == 0, "passes are multiples of eight rows");
  thread = recomputed(thread);
  const int chunk = kFirst + thread % kLanes;
  const int first = thread / kLanes;
  if (kCount < kLanes && chunk >= kFirst + kCount) return;
  const u16* from = source + first * row_stride + chunk * 8;
  // `place` permutes the first kPermuted rows within sixteen; the others stay in order.
  const u32 even = tile + Tile::offset(place(first), chunk);
  const u32 odd = tile + Tile::offset(place(first + 8), chunk) - 8 * Tile::kRowBytes;
#pragma unroll
  for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    const u32 to = kRowsPerPass == 8 && pass % 2 == 1 ? odd : even;
    const bool in_order = (pass + 1) * kRowsPerPass > kPermuted &&
                          (pass * kRowsPerPass >= kPermuted || row >= kPermuted);
    if ((pass + 1) * kRowsPerPass <= kRows || row < kRows) {
      copy_chunk<kCopyBytes>(
          in_order ? tile + Tile::offset(row, chunk) : to + pass * kRowsPerPass * Tile::kRowBytes,
          from, row < valid);
    }
    from += kRowsPerPass * row_stride;
  }
}

// cp_async_tile() for warps that do nothing else: few registers and instructions. `place` permutes
// the first kPermuted rows (a multiple of 16) within sixteen.
template <class Tile, int kRows, int kPermuted, int kThreads, int kCopyBytes, class Place>
__device__ __forceinline__ void stream_tile(u32 tile, const u16* source, i64 row_stride, int valid,
                                            int thread, Place&& place) {
  constexpr int kFirst = Tile::kChunks < 8 ? Tile::kChunks : 8;
  stream_columns<Tile, 0, kFirst, kRows, kPermuted, kThreads, kCopyBytes>(tile, source, row_stride,
                                                                          valid, thread, place);
  if constexpr (Tile::kChunks > 8) {
    stream_columns<Tile, 8, Tile::kChunks - 8, kRows, kPermuted, kThreads, kCopyBytes>(
        tile, source, row_stride, valid, thread, place);
  }
}

// Zeros the columns that products read behind the last one, where kColumns is no multiple of 16.
template <class Tile, int kRows, int kThreads>
__device__ __forceinline__ void clear_last_chunk(u32 tile, int thread) {
  if constexpr (Tile::kReadChunks > Tile::kChunks) {
    for (int row = thread; row < kRows; row += kThreads) {
#pragma unroll
      for (int i = 0; i < 16; i += 4) store_shared(tile + Tile::offset(row, Tile::kChunks) + i, 0);
    }
  }
}

}  // namespace vitune
