// templates/packed_attention/packed_sm90_pipelined.cuh -- Attention of packed sequences on wgmma,
// with producer warps.
//
// The streaming schedule of attention/forward_sm90_pipelined.cuh: persistent CTAs, whose producer
// warps bring tiles for this work item and the next while consumer warpgroups compute. The last
// step of keys comes first, while there is no output yet to be kept in registers beside it; under a
// causal mask the first keys do, because every row with keys sees those.
//
// Weights are relative to the maximum of the first step where they may be (HeldTraits); where they
// outgrow fp32 the rows are computed again, behind all items, since code in the loop costs time
// although it never runs.
//
// Tiles come by TMA, but for one that ends with the sequence, which is copied with cp.async: rows
// behind the last one become zeros, where a box of a tensor map would bring the neighbour's.
#pragma once

#include "attention/forward_sm90_pipelined.cuh"
#include "packed_attention/config.cuh"
#include "packed_attention/sequences.cuh"

namespace vitune {

// The first key of an item's step number `number`, in the order in which steps are taken.
template <class T>
__device__ __forceinline__ int step_key(int number, int steps) {
  if constexpr (T::kCausal) return number * T::kBlockN;
  return (number == 0 ? steps - 1 : number - 1) * T::kBlockN;
}

// Rows of a tensor: those of a sequence's head from `row` on, of which there are `count`, which are
// rows from `token` on of the packed tensor's head `head`.
struct PackedRows {
  const void* from;
  i64 step;
  int row, count, token, head;
};

// Two producer warps, of keys and queries or of values.
template <class T>
struct PackedProducer {
  const PipelinedShared<T>& shared;
  const PackedTensorMaps& maps;
  int thread = threadIdx.x % T::kCopyThreads;
  KeyState<T> at;  // or of values
  QueryState<T> query_at;

  __device__ __forceinline__ PackedProducer(const PipelinedShared<T>& memory,
                                            const PackedTensorMaps& tensor_maps)
      : shared(memory), maps(tensor_maps) {}

  __device__ __forceinline__ void keys(const PackedRows& rows) {
    mbarrier_wait(shared.keys_empty(at.index), at.phase ^ 1);
    copy<typename T::KeyTile, T::kKeyRows>(shared.keys(at.index), shared.keys_full(at.index), rows,
                                           maps.k);
    at.advance();
  }
  __device__ __forceinline__ void values(const PackedRows& rows) {
    mbarrier_wait(shared.values_empty(at.index), at.phase ^ 1);
    copy<typename T::ValueTile, T::kValueRows>(shared.values(at.index),
                                               shared.values_full(at.index), rows, maps.v);
    at.advance();
  }
  __device__ __forceinline__ void queries(const PackedRows& rows) {
    mbarrier_wait(shared.queries_empty(query_at.index), query_at.phase ^ 1);
    copy<typename T::QueryTile, kGroupRows>(shared.queries(query_at.index),
                                            shared.queries_full(query_at.index), rows, maps.q);
    query_at.advance();
  }

 private:
  template <class Tile, int kRows>
  __device__ __forceinline__ void copy(u32 tile, u32 full, const PackedRows& rows,
                                       const void* map) const {
    if (kRows <= rows.count) {
      if (thread != 0) {
        mbarrier_arrive(full);
      } else {
        copy_whole<Tile, kRows>(tile, full, rows, map);
      }
      return;
    }
    stream_tile<Tile, kRows, 0, T::kCopyThreads, T::kCopyBytes>(
        tile, static_cast<const u16*>(rows.from) + rows.row * rows.step, rows.step, rows.count,
        thread, [](int row) { return row; });
    mbarrier_arrive_when_copied(full);
  }
  template <class Tile, int kRows>
  __device__ __forceinline__ void copy_whole(u32 tile, u32 full, const PackedRows& rows,
                                             const void* map) const {
    constexpr int kBoxRows = box_rows(kRows);
    mbarrier_expect(full, Tile::kBytes);
#pragma unroll
    for (int atom = 0; atom < Tile::kAtoms; ++atom) {
#pragma unroll
      for (int box = 0; box < kRows / kBoxRows; ++box) {
        copy_box(tile + atom * Tile::kAtomBytes + box * kBoxRows * Tile::kRowBytes, map, full,
                 atom * Tile::kAtomColumns, rows.token + box * kBoxRows, rows.head, 0);
      }
    }
  }
};

// The steps of one item.
template <class T>
__device__ __forceinline__ void produce_item(PackedProducer<T>& producer, bool of_values,
                                             int kv_head, const AttentionParams& own, int block_row,
                                             const PackedItem& item) {
  const int steps = packed_steps<T>(own, block_row);
#pragma unroll 1
  for (int number = 0; number < steps; ++number) {
    const int key0 = step_key<T>(number, steps);
    const i64 step = of_values ? own.v_view.row : own.k_view.row;
    const PackedRows rows = {of_values ? own.v : own.k, step,   key0, own.keys - key0,
                             item.keys.begin + key0,    kv_head};
    if (of_values) {
      producer.values(rows);
      continue;
    }
    producer.keys(rows);
#pragma unroll 1
    for (int group = 0; number == 0 && group < T::kGroups; ++group) {
      const int row = block_row + group * kGroupRows;
      producer.queries({own.q, own.q_view.row, row, own.queries - row,
                        item.queries.begin + row - first_row<T>(item), item.head});
    }
  }
}

template <class T>
__device__ __forceinline__ void produce_packed(const PackedAttentionParams& p,
                                               const PackedTensorMaps& maps,
                                               const PipelinedShared<T>& shared) {
  const bool of_values = threadIdx.x / kWarpSize % 4 >= 2;
  PackedProducer<T> producer(shared, maps);
  for_each_packed_item<T>(
      p, [] {},
      [&](const AttentionParams& own, int block_row, const PackedItem& item) {
        produce_item<T>(producer, of_values, quotient(item.head, p.call.by_heads_per_kv), own,
                        block_row, item);
      });
  copy_commit();
  copy_wait<0>();
}

// A step over the keys from key0 on, of which `limit` exist. kMasked: some row does not see all of
// them. kFirst: nothing was attended to before.
template <class T, bool kMasked, bool kFirst>
__device__ __forceinline__ void packed_step(GroupAttention<T>& group, ConsumedTiles<T>& tiles,
                                            u32 queries, int key0, int limit) {
  typename GroupAttention<T>::Scores s;
  typename GroupAttention<T>::template Weights<T::kBlockN> weights;
  const u32 keys = tiles.shared.keys(tiles.at.index);
  const u32 values = tiles.shared.values(tiles.at.index);
  tiles.wait_for_keys();
  group.template start_scores<T::kBlockN>(s, queries, keys);
  wgmma_wait<0>();
  tiles.release_keys();
  group.template weigh<T::kBlockN, kMasked, kMasked && T::kCausal, kFirst>(weights, s, key0, limit);
  tiles.wait_for_values();
  group.template start_output<T::kBlockN, kFirst>(weights, values);
  wgmma_wait<0>();
  tiles.release_values();
}

// All steps of a warpgroup's 64 rows from row0 on.
template <class T>
__device__ __forceinline__ void packed_steps_of(GroupAttention<T>& group, ConsumedTiles<T>& tiles,
                                                u32 queries, const AttentionParams& own, int row0,
                                                int steps) {
  const int first_key = step_key<T>(0, steps);
  packed_step<T, true, true>(group, tiles, queries, first_key, own.keys - first_key);
#pragma unroll 1
  for (int number = 1; number < steps; ++number) {
    const int key0 = step_key<T>(number, steps), limit = own.keys - key0;
    if constexpr (T::kCausal) {
      if (key0 > row0 + kGroupRows - 1) {
        tiles.skip_step();
        continue;
      }
      if (key0 + T::kBlockN > row0 + 1 || limit < T::kBlockN) {
        packed_step<T, true, false>(group, tiles, queries, key0, limit);
        continue;
      }
    }
    packed_step<T, false, false>(group, tiles, queries, key0, limit);
  }
}

template <class T>
__device__ __forceinline__ void consume_packed(const PackedAttentionParams& p,
                                               const PipelinedShared<T>& shared) {
  const int warpgroup = threadIdx.x / kGroupThreads;
  const u32 staging =
      shared.staging(warpgroup) + threadIdx.x / kWarpSize % 4 * T::kWarpRows * T::Rows::kPitch;
  KeyState<T> at;
  u32 query_phase = 0;
  OrderedBarrier<T> order(shared, warpgroup, T::kGroups);
  GroupBias<T> bias(shared, warpgroup);
  bool again = false;
  for_each_packed_item<T>(
      p, [] {},
      [&](const AttentionParams& own, int block_row, const PackedItem&) {
        const int steps = packed_steps<T>(own, block_row);
        const int row0 = block_row + warpgroup * kGroupRows;
        const bool active = row0 < own.queries;
        const HeadPlace head(own, 0);
        GroupAttention<T> group;
        group.begin(own, group_rows(row0, head));
        if (steps == 0) {
          group.clear_output();
        } else {
          ConsumedTiles<T> tiles{shared, at, order, bias, shared.queries_empty(warpgroup), steps};
          mbarrier_wait(shared.queries_full(warpgroup), query_phase);
          query_phase ^= 1;
          if (active) {
            packed_steps_of<T>(group, tiles, shared.queries(warpgroup), own, row0, steps);
          } else {
#pragma unroll 1
            for (int step = 0; step < steps; ++step) tiles.skip_step();
          }
        }
        if (active && steps > 0) again |= group.overflowed();
        if (active) Epilogue<T>::store(own, group.place, staging, group.o, group.softmax);
      });
  if constexpr (T::kHoldsReference) {
    if (!again) return;
    for_each_packed_item<T>(
        p, [] {},
        [&](const AttentionParams& own, int block_row, const PackedItem&) {
          const int row0 = block_row + warpgroup * kGroupRows;
          if (row0 >= own.queries || own.keys == 0) return;
          compute_again<T>(own, group_rows(row0, HeadPlace(own, 0)));
        });
  }
}

template <class Config>
__device__ __forceinline__ void packed_attention(const PackedAttentionParams& p,
                                                 const PackedTensorMaps& maps) {
  using T = HeldTraits<PackedTraits<PipelinedTraits<PackedNumbers<Config>>>>;
  extern __shared__ __align__(1024) char shared_memory[];
  const PipelinedShared<T> shared{shared_address(shared_memory)};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.k);
    prefetch_map(maps.q);
    prefetch_map(maps.v);
  }
  if (threadIdx.x == 0) shared.init(4 * T::kGroups);
  clear_tiles<T>(shared);
  wait_for_earlier_grids();
  __syncthreads();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    produce_packed<T>(p, maps, shared);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    consume_packed<T>(p, shared);
  }
}

}  // namespace vitune
