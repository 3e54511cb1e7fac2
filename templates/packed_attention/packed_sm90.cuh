// templates/packed_attention/packed_sm90.cuh -- Attention of packed sequences on wgmma, for sm_90a.
//
// The streaming schedule of attention/forward_sm90.cuh, one head of one sequence at a time. Tiles
// are copied with cp.async, not by tensor maps: a map's box would bring the neighbour's rows, and
// its bounds would have to be the sequence's. Rows behind the last one become zeros, so that no
// weight of 0 meets what a neighbour holds.
#pragma once

#include "attention/forward_sm90.cuh"
#include "packed_attention/config.cuh"
#include "packed_attention/sequences.cuh"

namespace vitune {

template <class T>
__device__ __forceinline__ void packed_item(const AttentionParams& own, int block_row, u32 shared) {
  const HeadPlace head(own, 0);
  const int warpgroup = threadIdx.x / kGroupThreads;
  const int row0 = block_row + warpgroup * kGroupRows;
  const bool active = row0 < own.queries;
  const u32 queries = shared + warpgroup * T::kQueryBytes;
  const u32 keys = shared + T::kGroups * T::kQueryBytes;
  const GroupStream<T> stream{own, head, queries, keys, keys + T::kKeyBytes};
  const int steps = packed_steps<T>(own, block_row);

  if (active) load_group_queries<T>(own, head, row0, queries);
  copy_commit();
#pragma unroll
  for (int step = 0; step + 1 < T::kStages; ++step) {
    if (step < steps) stream.load(step);
    copy_commit();
  }
  GroupAttention<T> group;
  group.begin(own, group_rows(row0, head));
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<T::kStages - 2>();
    fence_proxy_async();
    __syncthreads();  // this step's tiles are there, the last step's have been read
    const int ahead = step + T::kStages - 1;
    if (ahead < steps) stream.load(ahead);
    copy_commit();
    if (active) stream.attend(group, step, row0);
  }
  if (steps == 0) {
    copy_wait<0>();  // of queries that no step has waited for
    __syncthreads();
  }
  if (active) store_group_rows(own, queries, group);
}

template <class Config>
__device__ __forceinline__ void packed_attention(const PackedAttentionParams& p) {
  using T = PackedTraits<GroupTraits<PackedNumbers<Config>>>;
  extern __shared__ __align__(1024) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  clear_stages<T>(shared + T::kGroups * T::kQueryBytes);
  wait_for_earlier_grids();
  for_each_packed_item<T>(
      p, [] { __syncthreads(); },  // shared memory may still be read
      [&](const AttentionParams& own, int block_row, const PackedItem&) {
        packed_item<T>(own, block_row, shared);
      });
}

}  // namespace vitune
