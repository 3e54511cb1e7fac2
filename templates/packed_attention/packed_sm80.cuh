// templates/packed_attention/packed_sm80.cuh -- Attention of packed sequences on mma.sync, for
// sm_80 and later.
//
// The streaming schedule of attention/forward_sm80.cuh, one head of one sequence at a time. Copies
// end with the sequence: rows behind its last one become zeros in shared memory, so that no weight
// of 0 meets what a neighbour holds.
#pragma once

#include "attention/forward_sm80.cuh"
#include "packed_attention/config.cuh"
#include "packed_attention/sequences.cuh"

namespace vitune {

template <class T>
__device__ __forceinline__ void packed_item(const AttentionParams& own, int block_row, u32 shared) {
  const HeadPlace head(own, 0);
  const int warp_index = threadIdx.x / kWarpSize;
  const int row0 = block_row + warp_index * T::kWarpRows;
  const bool active = row0 < own.queries;
  const u32 query_rows = shared + warp_index * T::kQueryBytes;
  const u32 keys = shared + T::kWarps * T::kQueryBytes;
  const StreamedTiles<T> tiles{own, head, keys, keys + T::kKeyBytes,
                               packed_steps<T>(own, block_row)};

  if (active) load_queries<T>(own, head, row0, query_rows);
  copy_commit();
  if (tiles.steps > 0) {
    fill_stages(tiles);
    copy_wait<max_of(T::kStages - 1, 1)>();  // the queries, which only this warp reads
  } else {
    copy_wait<0>();
  }
  __syncwarp();

  WarpAttention<T> warp(threadIdx.x % kWarpSize);
  if (active) warp.begin(own, row_place(row0, head), query_rows);
  stream_steps(warp, own, tiles, 0, active);
  if (active) Epilogue<T>::store(own, warp.place, query_rows, warp.o, warp.softmax);
}

template <class Config>
__device__ __forceinline__ void packed_attention(const PackedAttentionParams& p) {
  using T = PackedTraits<Traits<PackedNumbers<Config>>>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  for_each_packed_item<T>(
      p, [] { __syncthreads(); },  // shared memory may still be read
      [&](const AttentionParams& own, int block_row, const PackedItem&) {
        packed_item<T>(own, block_row, shared);
      });
}

}  // namespace vitune
