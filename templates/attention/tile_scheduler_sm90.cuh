// templates/attention/tile_scheduler_sm90.cuh -- The work tiles of a kernel with producer warps.
//
// A persistent CTA takes every so-many-th work tile; all of its roles walk over the same ones.
#pragma once

#include "attention/config_sm90_pipelined.cuh"
#include "attention/tile_scheduler.cuh"

namespace vitune {

// Query rows behind the last whole block, which the swap-AB tail takes.
template <class T>
__device__ __forceinline__ int tail_rows(int queries) {
  const int rest = queries % kGroupRows;
  return T::kSwapAbRows > 0 && queries > kGroupRows && rest <= T::kSwapAbRows ? rest : 0;
}

// Blocks of 64 rows of a head, which consumer warpgroups take.
template <class T>
__device__ __forceinline__ int row_blocks(int queries) {
  return ceil_div(queries - tail_rows<T>(queries), kGroupRows);
}

// Warpgroups that share the blocks of a resident head: no more than can know of the phases before
// (collective/pipeline.cuh). With TMA, whose copies may end in any order, each of them has a block
// of every head and query tiles of its own, or there is only one.
template <class T>
__device__ __forceinline__ int resident_groups(int blocks) {
  if constexpr (T::kTensorCopies) return blocks < T::kGroups ? 1 : T::kGroups;
  return min(T::kGroups, T::kRing * blocks);
}

// A work tile: all rows of a head (resident), or up to T::kBlockM of them (streaming).
template <class T>
struct WorkTile {
  int index;
  int head_index, row0, steps;
  int end;    // one past its last row
  bool last;  // of its head

  __device__ __forceinline__ WorkTile(const AttentionParams& p, int item) : index(item) {
    const int rows = p.queries - tail_rows<T>(p.queries);
    if constexpr (T::kResident) {
      head_index = item;
      row0 = 0;
      steps = 1;  // one tile holds them all
      end = rows;
    } else if constexpr (T::kEvenItems) {
      place_evenly(p, item, rows);
    } else {
      const StreamingItem<T> at(p, item, rows);
      head_index = at.head_index;
      row0 = at.row0;
      steps = ceil_div(T::kCausal ? min(T::kKeys, row0 + T::kBlockM) : T::kKeys, T::kBlockN);
      end = min(row0 + T::kBlockM, rows);
    }
    last = end == rows;
  }

 private:
  // Whole tiles of all heads, then the rest of each head (AttentionParams).
  __device__ __forceinline__ void place_evenly(const AttentionParams& p, u32 item, int rows) {
    const u32 all_whole = u32(p.batch * p.heads) * u32(p.whole_items);
    const bool whole = item < all_whole;
    const AttentionDivisor& of_head = whole ? p.by_items : p.by_rest_items;
    const int count = whole ? T::kBlockM : p.rest_blocks * kGroupRows;
    if (!whole) item -= all_whole;
    head_index = quotient(item, of_head);
    row0 =
        (whole ? 0 : p.whole_items * T::kBlockM) + int(item - head_index * of_head.value) * count;
    steps = ceil_div(T::kKeys, T::kBlockN);
    end = min(row0 + count, rows);
  }
};

// The work tile of this CTA after `index`. Under a causal mask tiles get shorter from one to the
// next: every other round goes the other way, so that all CTAs get as much work.
template <class T>
__device__ __forceinline__ int next_tile(int index) {
  if constexpr (!T::kCausal || T::kResident) return index + int(gridDim.x);
  const int place = u32(index) % gridDim.x;
  return index + 2 * (int(gridDim.x) - place) - 1;
}

// The step of keys that a work tile begins with (number 0), and those that follow. The last step
// has a width of its own and comes first, while there is no output yet to be kept in registers
// beside it; under a causal mask the first keys come first, because every row sees those.
template <class T>
__device__ __forceinline__ int key_step(int number) {
  if constexpr (T::kCausal) return number;
  return number == 0 ? T::Keys::kCount - 1 : number - 1;
}

// For producers: calls step(tile, head, number) for all steps of this CTA's work tiles.
template <class T, class Step>
__device__ __forceinline__ void for_each_step(const AttentionParams& p, Step&& step) {
#pragma unroll 1
  for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
    const WorkTile<T> tile(p, index);
    const HeadPlace head(p, tile.head_index);
#pragma unroll 1
    for (int number = 0; number < tile.steps; ++number) step(tile, head, number);
  }
}

}  // namespace vitune
