// templates/collective/smem_tile.cuh -- Tiles of 16-bit rows in shared memory and their wgmma
// descriptors.
//
// Two layouts are free of bank conflicts. In TileRows each row is padded: for ldmatrix. A SmemTile
// is swizzled, as wgmma and TMA want it: it consists of atom columns, kSwizzle bytes (kSwizzle / 2
// columns) wide, whose rows follow each other. Within eight rows the 16-byte chunks of a row trade
// places so that neither rows nor columns meet in a bank: bits 4.. of an address are combined by
// exclusive or with bits 7.. (PTX ISA, "Shared Memory Matrix Layout", swizzling modes). A SmemTile
// starts at a multiple of 8 * kSwizzle bytes.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Rows of kColumns 16-bit elements, padded to an odd multiple of 16 bytes: eight consecutive rows
// then start in eight different bank groups.
template <int kColumns>
struct TileRows {
  static_assert(kColumns % 8 == 0,
                "rows are made of 16-byte chunks: columns must be a multiple of 8");
  static constexpr int kChunks = kColumns / 8;
  static constexpr int kPitch = (kChunks | 1) * 16;  // bytes
};

// kRows rows (a multiple of 8) of kColumns 16-bit elements.
template <int kColumns, int kRows, int kSwizzle>
struct SmemTile {
  static_assert(kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128,
                "kSwizzle must be 32, 64 or 128 bytes");
  static_assert(kRows % 8 == 0, "a swizzled tile has a multiple of 8 rows");
  static constexpr int kAtomColumns = kSwizzle / 2;
  static constexpr int kAtomChunks = kSwizzle / 16;
  static constexpr int kRowBytes = kSwizzle;  // to the next row of an atom column
  static constexpr int kAtoms = ceil_div(kColumns, kAtomColumns);
  static constexpr int kAtomBytes = kRows * kSwizzle;
  static constexpr int kBytes = kAtoms * kAtomBytes;
  // Chunks that hold data, and those that products over sixteen columns read.
  static constexpr int kChunks = kColumns / 8;
  static constexpr int kReadChunks = ceil_div(kColumns, 16) * 2;

  static __device__ __forceinline__ u32 offset(int row, int chunk) {
    const u32 plain = (chunk / kAtomChunks) * kAtomBytes + row * kSwizzle;
    const u32 place = (chunk % kAtomChunks) ^ ((plain >> 7) & (kAtomChunks - 1));
    return plain + place * 16;
  }
  // Offset of the sixteen columns from 16 * step on, of row 0.
  static __host__ __device__ constexpr int step_offset(int step) {
    return (16 * step / kAtomColumns) * kAtomBytes + (16 * step % kAtomColumns) * 2;
  }
};

// The part of a matrix descriptor that does not depend on the address: eight rows to the next
// eight, and with `atom_bytes` the way to the next atom column (PTX ISA, "Matrix Descriptor
// Format").
template <int kSwizzle>
__device__ __forceinline__ constexpr u64 descriptor_layout(int atom_bytes) {
  const u64 mode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
  return mode << 62 | u64(8 * kSwizzle >> 4) << 32 | u64(atom_bytes >> 4) << 16;
}
// Descriptor of an operand whose depth runs along the rows (K-major): sixteen columns at `address`.
template <int kSwizzle>
__device__ __forceinline__ u64 descriptor_k_major(u32 address) {
  return descriptor_layout<kSwizzle>(16) | ((address & 0x3ffff) >> 4);
}
// Descriptor of an operand whose depth runs across the rows (MN-major): sixteen rows at `address`.
template <int kSwizzle>
__device__ __forceinline__ u64 descriptor_mn_major(u32 address, int atom_bytes) {
  return descriptor_layout<kSwizzle>(atom_bytes) | ((address & 0x3ffff) >> 4);
}

// The descriptor of what lies `bytes` further on. The address is in the low word and never carries
// out of it; sums of whole descriptors would be kept in two registers each.
__device__ __forceinline__ u64 descriptor_at(u64 descriptor, int bytes) {
  return (descriptor & 0xffffffff00000000ull) | (u32(descriptor) + u32(bytes >> 4));
}

}  // namespace vitune
