// templates/attention/pipelined_item.cuh -- What all roles of a pipelined kernel walk over.
#pragma once

#include "attention/config_sm90_pipelined.cuh"
#include "attention/tile_scheduler.cuh"

namespace vitune {

// Query rows behind the last whole block that the warpgroup for spare rows takes.
template <class T>
__device__ __forceinline__ int spare_rows(int queries) {
  const int rest = queries % kGroupRows;
  return T::kSpareRows > 0 && queries > kGroupRows && rest <= T::kSpareRows ? rest : 0;
}

// Blocks of rows that computing warpgroups take, of a head.
template <class T>
__device__ __forceinline__ int row_blocks(int queries) {
  return ceil_div(queries - spare_rows<T>(queries), kGroupRows);
}

// Warpgroups that share the blocks of a resident head: no more than can know of the phases before
// (pipeline.cuh). With copies that may end in any order each of them has a block of every head and
// query slots of its own, or there is only one.
template <class T>
__device__ __forceinline__ int resident_groups(int blocks) {
  if constexpr (T::kTensorCopies) return blocks < T::kGroups ? 1 : T::kGroups;
  return min(T::kGroups, T::kRing * blocks);
}

// The work items of a CTA: all rows of a head (resident), or up to T::kBlockM of them (streaming).
template <class T>
struct PipelinedItem {
  int index;
  int head_index, row0, steps;
  int end;    // of its rows
  bool last;  // of its head

  __device__ __forceinline__ PipelinedItem(const AttentionParams& p, int item) : index(item) {
    const int rows = p.queries - spare_rows<T>(p.queries);
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
  // Whole items of all heads, then what is left of each (AttentionParams).
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

// The work item of this CTA after `index`. Under a causal mask items get shorter from one to the
// next: every other round goes the other way, so that all CTAs get as much.
template <class T>
__device__ __forceinline__ int next_item(int index) {
  if constexpr (!T::kCausal || T::kResident) return index + int(gridDim.x);
  const int place = u32(index) % gridDim.x;
  return index + 2 * (int(gridDim.x) - place) - 1;
}

// Which step of keys comes as number `turn`. The last one has a width of its own and comes first,
// while there is no output yet to be kept in registers beside it; under a causal mask the first
// keys come first, because every row sees those.
template <class T>
__device__ __forceinline__ int step_of_turn(int turn) {
  if constexpr (T::kCausal) return turn;
  return turn == 0 ? T::Keys::kCount - 1 : turn - 1;
}

// For the warps that copy: calls step(item, head, turn) for all steps of this CTA's items.
template <class T, class Step>
__device__ __forceinline__ void for_each_step(const AttentionParams& p, Step&& step) {
#pragma unroll 1
  for (int index = blockIdx.x; index < p.items; index = next_item<T>(index)) {
    const PipelinedItem<T> item(p, index);
    const HeadPlace head(p, item.head_index);
#pragma unroll 1
    for (int turn = 0; turn < item.steps; ++turn) step(item, head, turn);
  }
}

}  // namespace vitune
