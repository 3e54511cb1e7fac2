// templates/primitives/tile.cuh -- Tiles of 16-bit rows in shared memory and how they are filled.
//
// Rows are padded to an odd multiple of 16 bytes: eight consecutive rows then start in eight
// different bank groups, so ldmatrix and 16-byte accesses are free of conflicts without any
// swizzle.
#pragma once

#include "primitives/copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Geometry of rows of kColumns 16-bit elements.
template <int kColumns>
struct TileRows {
  static_assert(kColumns % 8 == 0,
                "rows are made of 16-byte chunks: columns must be a multiple of 8");
  static constexpr int kChunks = kColumns / 8;
  static constexpr int kPitch = (kChunks | 1) * 16;  // bytes
};

// Copies kRows rows of a strided global matrix into a tile with kThreads threads. Rows from `valid`
// on become zeros; the first kSure rows are known to be valid, so nothing is computed to find out.
// Completes with the caller's commit group.
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

}  // namespace vitune
