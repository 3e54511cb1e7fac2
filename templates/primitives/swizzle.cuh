// templates/primitives/swizzle.cuh -- Tiles in swizzled panels: how wgmma wants its operands.
//
// A panel is kSwizzle bytes (kSwizzle / 2 columns) wide; its rows follow each other. Within eight
// rows the 16-byte chunks of a row trade places so that neither rows nor columns meet in a bank:
// bits 4.. of an address are combined by exclusive or with bits 7.. (PTX ISA, "Shared Memory Matrix
// Layout", swizzling modes). A tile starts at a multiple of 8 * kSwizzle bytes.
#pragma once

#include "primitives/copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Geometry of kRows rows (a multiple of 8) of kColumns 16-bit elements.
template <int kColumns, int kRows, int kSwizzle>
struct PanelTile {
  static_assert(kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128,
                "kSwizzle must be 32, 64 or 128 bytes");
  static_assert(kRows % 8 == 0, "a swizzled tile has a multiple of 8 rows");
  static constexpr int kPanelColumns = kSwizzle / 2;
  static constexpr int kPanelChunks = kSwizzle / 16;
  static constexpr int kRowBytes = kSwizzle;  // to the next row of a panel
  static constexpr int kPanels = ceil_div(kColumns, kPanelColumns);
  static constexpr int kPanelBytes = kRows * kSwizzle;
  static constexpr int kBytes = kPanels * kPanelBytes;
  // Chunks that hold data, and those that products over sixteen columns read.
  static constexpr int kChunks = kColumns / 8;
  static constexpr int kReadChunks = ceil_div(kColumns, 16) * 2;

  static __device__ __forceinline__ u32 offset(int row, int chunk) {
    const u32 plain = (chunk / kPanelChunks) * kPanelBytes + row * kSwizzle;
    const u32 place = (chunk % kPanelChunks) ^ ((plain >> 7) & (kPanelChunks - 1));
    return plain + place * 16;
  }
  // Offset of the sixteen columns from 16 * step on, of row 0.
  static __host__ __device__ constexpr int step_offset(int step) {
    return (16 * step / kPanelColumns) * kPanelBytes + (16 * step % kPanelColumns) * 2;
  }
};

// The part of a matrix descriptor that does not depend on the address: eight rows to the next
// eight, and with `panel_bytes` the way to the next panel (PTX ISA, "Matrix Descriptor Format").
template <int kSwizzle>
__device__ __forceinline__ constexpr u64 descriptor_layout(int panel_bytes) {
  const u64 mode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
  return mode << 62 | u64(8 * kSwizzle >> 4) << 32 | u64(panel_bytes >> 4) << 16;
}
// Descriptor of an operand whose depth runs along the rows (K-major): sixteen columns at `address`.
template <int kSwizzle>
__device__ __forceinline__ u64 descriptor_along_rows(u32 address) {
  return descriptor_layout<kSwizzle>(16) | ((address & 0x3ffff) >> 4);
}
// Descriptor of an operand whose depth runs across the rows (MN-major): sixteen rows at `address`.
template <int kSwizzle>
__device__ __forceinline__ u64 descriptor_across_rows(u32 address, int panel_bytes) {
  return descriptor_layout<kSwizzle>(panel_bytes) | ((address & 0x3ffff) >> 4);
}

// The descriptor of what lies `bytes` further on. The address is in the low word and never carries
// out of it; sums of whole descriptors would be kept in two registers each.
__device__ __forceinline__ u64 descriptor_at(u64 descriptor, int bytes) {
  return (descriptor & 0xffffffff00000000ull) | (u32(descriptor) + u32(bytes >> 4));
}

// Copies kRows rows of a strided global matrix into a tile with kThreads threads; kPlace maps a
// row's number to its place in the tile. Rows from `valid` on become zeros; the first kSure rows
// are known to be valid. Completes with the caller's commit group.
template <class Tile, int kRows, int kThreads, int kCopyBytes, int kSure, class Place>
__device__ __forceinline__ void load_panels(u32 tile, const u16* source, i64 row_stride, int valid,
                                            int thread, Place&& place) {
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
template <class Tile, int kFirst, int kCount, int kRows, int kDealt, int kThreads, int kCopyBytes,
          class Place>
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
  // `place` deals the first kDealt rows out within sixteen; the others stay in order.
  const u32 even = tile + Tile::offset(place(first), chunk);
  const u32 odd = tile + Tile::offset(place(first + 8), chunk) - 8 * Tile::kRowBytes;
#pragma unroll
  for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    const u32 to = kRowsPerPass == 8 && pass % 2 == 1 ? odd : even;
    const bool in_order =
        (pass + 1) * kRowsPerPass > kDealt && (pass * kRowsPerPass >= kDealt || row >= kDealt);
    if ((pass + 1) * kRowsPerPass <= kRows || row < kRows) {
      copy_chunk<kCopyBytes>(
          in_order ? tile + Tile::offset(row, chunk) : to + pass * kRowsPerPass * Tile::kRowBytes,
          from, row < valid);
    }
    from += kRowsPerPass * row_stride;
  }
}

// load_panels() for warps that do nothing else: few registers and instructions. `place` deals the
// first kDealt rows (a multiple of 16) out within sixteen.
template <class Tile, int kRows, int kDealt, int kThreads, int kCopyBytes, class Place>
__device__ __forceinline__ void stream_panels(u32 tile, const u16* source, i64 row_stride,
                                              int valid, int thread, Place&& place) {
  constexpr int kFirst = Tile::kChunks < 8 ? Tile::kChunks : 8;
  stream_columns<Tile, 0, kFirst, kRows, kDealt, kThreads, kCopyBytes>(tile, source, row_stride,
                                                                       valid, thread, place);
  if constexpr (Tile::kChunks > 8) {
    stream_columns<Tile, 8, Tile::kChunks - 8, kRows, kDealt, kThreads, kCopyBytes>(
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
