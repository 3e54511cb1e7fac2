// templates/collective/tma_tile.cuh -- Fills tiles of shared memory by TMA.
#pragma once

#include "primitives/tile_copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Starts the copies of kAtoms atom columns of 64 columns, from `column` on, kAtomBytes apart in
// shared memory; by one thread. kMulticast: this CTA copies the rows from `half` on into both CTAs
// of a pair.
template <int kAtoms, int kAtomBytes, bool kMulticast>
__device__ __forceinline__ void tma_load_atoms(u32 to, const void* map, u32 full, int column,
                                               int row, int half) {
#pragma unroll
  for (int atom = 0; atom < kAtoms; ++atom) {
    const u32 there = to + atom * kAtomBytes + half * 128;
    if constexpr (kMulticast) {
      copy_tile_to_ranks(there, map, full, column + 64 * atom, row + half, 3);
    } else {
      copy_tile(there, map, full, column + 64 * atom, row);
    }
  }
}

}  // namespace vitune
