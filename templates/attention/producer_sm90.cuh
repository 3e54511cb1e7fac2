// templates/attention/producer_sm90.cuh -- The producer warps: copies of keys, values, queries and
// bias.
//
// All of them go through the same work tiles and steps; the pipelines keep them as far ahead of the
// consumers as there are tiles. Where one warpgroup computes alone it releases tiles in the order
// in which it gets them: then a single thread waits for each of them and starts all copies, a
// step's keys (before the first ones its queries), its bias, its values, and no tile is late
// because of it.
#pragma once

#include "attention/bias_producer_sm90.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/group_attention.cuh"
#include "attention/params.cuh"
#include "attention/shared_sm90.cuh"
#include "attention/tile_scheduler_sm90.cuh"
#include "collective/cp_async_tile.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

// By cp.async, for any stride and alignment from 4 bytes on: two warps load keys and queries, two
// the values.
template <class T>
struct ThreadCopies {
  const AttentionParams& p;
  const PipelinedShared<T>& shared;
  int thread = threadIdx.x % T::kCopyThreads;
  static constexpr int kPermutedRows = T::kPermuted ? T::kKeyRows / 16 * 16 : 0;

  __device__ __forceinline__ ThreadCopies(const AttentionParams& params,
                                          const PipelinedShared<T>& memory)
      : p(params), shared(memory) {}
  __device__ __forceinline__ void keys(u32 tile, u32 full, const HeadPlace& head, int key0) const {
    stream_tile<typename T::KeyTile, T::kKeyRows, kPermutedRows, T::kCopyThreads, T::kCopyBytes>(
        tile, head.k + key0 * p.k_view.row, p.k_view.row, T::kKeys - key0, thread, Permuted());
    mbarrier_arrive_when_copied(full);
  }
  __device__ __forceinline__ void values(u32 tile, u32 full, const HeadPlace& head,
                                         int key0) const {
    stream_tile<typename T::ValueTile, T::kValueRows, kPermutedRows, T::kCopyThreads,
                T::kCopyBytes>(tile, head.v + key0 * p.v_view.row, p.v_view.row, T::kKeys - key0,
                               thread, Permuted());
    mbarrier_arrive_when_copied(full);
  }
  __device__ __forceinline__ void queries(u32 tile, u32 full, const HeadPlace& head,
                                          int row0) const {
    stream_tile<typename T::QueryTile, kGroupRows, 0, T::kCopyThreads, T::kCopyBytes>(
        tile, head.q + row0 * p.q_view.row, p.q_view.row, p.queries - row0, thread,
        [](int row) { return row; });
    mbarrier_arrive_when_copied(full);
  }
  // Before a producer thread ends.
  __device__ __forceinline__ void finish() const {
    copy_commit();
    copy_wait<0>();
  }

 private:
  struct Permuted {
    __device__ __forceinline__ int operator()(int row) const {
      return place_of_key<T, T::kKeyRows>(row);
    }
  };
};

// By TMA: one thread starts the copies of keys and queries, one those of the values.
template <class T>
struct TensorCopies {
  const AttentionParams& p;
  const AttentionTensorMaps& maps;

  __device__ __forceinline__ TensorCopies(const AttentionParams& params,
                                          const AttentionTensorMaps& maps_)
      : p(params), maps(maps_) {}
  __device__ __forceinline__ void keys(u32 tile, u32 full, const HeadPlace& head, int key0) const {
    tma_load<typename T::KeyTile, T::kKeyRows>(tile, maps.k, full, key0, kv_head(head), head.batch);
  }
  __device__ __forceinline__ void values(u32 tile, u32 full, const HeadPlace& head,
                                         int key0) const {
    tma_load<typename T::ValueTile, T::kValueRows>(tile, maps.v, full, key0, kv_head(head),
                                                   head.batch);
  }
  __device__ __forceinline__ void queries(u32 tile, u32 full, const HeadPlace& head,
                                          int row0) const {
    tma_load<typename T::QueryTile, kGroupRows>(tile, maps.q, full, row0, head.head, head.batch);
  }
  __device__ __forceinline__ void finish() const {}

 private:
  __device__ __forceinline__ int kv_head(const HeadPlace& head) const {
    return quotient(head.head, p.by_heads_per_kv);
  }
  template <class Tile, int kRows>
  __device__ __forceinline__ void tma_load(u32 tile, const void* map, u32 full, int row, int head,
                                           int batch) const {
    constexpr int kBoxRows = box_rows(kRows);
    mbarrier_expect(full, Tile::kBytes);
#pragma unroll
    for (int atom = 0; atom < Tile::kAtoms; ++atom) {
#pragma unroll
      for (int box = 0; box < kRows / kBoxRows; ++box) {
        copy_box(tile + atom * Tile::kAtomBytes + box * kBoxRows * Tile::kRowBytes, map, full,
                 atom * Tile::kAtomColumns, row + box * kBoxRows, head, batch);
      }
    }
  }
};

// The walk of a producer thread over the work tiles: it acquires a tile, starts its copies, moves
// on.
template <class T, class Copies>
struct Producer {
  const AttentionParams& p;
  const PipelinedShared<T>& shared;
  Copies copies;
  KeyState<T> at;
  QueryState<T> query_at;

  __device__ __forceinline__ void keys(const HeadPlace& head, int key0) {
    mbarrier_wait(shared.keys_empty(at.index), at.phase ^ 1);
    copies.keys(shared.keys(at.index), shared.keys_full(at.index), head, key0);
    at.advance();
  }
  __device__ __forceinline__ void values(const HeadPlace& head, int key0) {
    mbarrier_wait(shared.values_empty(at.index), at.phase ^ 1);
    copies.values(shared.values(at.index), shared.values_full(at.index), head, key0);
    at.advance();
  }
  __device__ __forceinline__ void queries(const HeadPlace& head, int row0) {
    mbarrier_wait(shared.queries_empty(query_at.index), query_at.phase ^ 1);
    copies.queries(shared.queries(query_at.index), shared.queries_full(query_at.index), head, row0);
    query_at.advance();
  }

  // Streaming: an item's first keys, its queries, its other keys.
  __device__ __forceinline__ void keys_streaming() {
    for_each_step<T>(p, [this](const WorkTile<T>& item, const HeadPlace& head, int number) {
      keys(head, key_step<T>(number) * T::kBlockN);
      if (number > 0) return;
#pragma unroll 1
      for (int group = 0; group < T::kGroups; ++group) {
        queries(head, item.row0 + group * kGroupRows);
      }
    });
  }
  // Resident: with room for them the next head's keys as soon as this head's queries fill their
  // slots, else when the computing warps have all its queries.
  __device__ __forceinline__ void keys_resident() {
    const int blocks = row_blocks<T>(p.queries);
    const int early = T::kRing > 1 ? T::kGroups : blocks;
    if (int(blockIdx.x) < p.items) keys(HeadPlace(p, blockIdx.x), 0);
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
      const HeadPlace head(p, index);
      const int next = next_tile<T>(index);
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        if (block == early && next < p.items) keys(HeadPlace(p, next), 0);
        queries(head, block * kGroupRows);
      }
      if (blocks <= early && next < p.items) keys(HeadPlace(p, next), 0);
    }
  }
  __device__ __forceinline__ void all_values() {
    for_each_step<T>(p, [this](const WorkTile<T>&, const HeadPlace& head, int number) {
      values(head, T::kResident ? 0 : key_step<T>(number) * T::kBlockN);
    });
  }
  __device__ __forceinline__ void run(bool of_values) {
    if (of_values) {
      all_values();
    } else if (T::kResident) {
      keys_resident();
    } else {
      keys_streaming();
    }
    copies.finish();
  }
};

template <class T>
struct NoBiasWalk {
  __device__ __forceinline__ void single_rows(int, int, int) {}
};

// One thread that brings everything, in the order in which the only consumer warpgroup reads it.
template <class T, class Bias>
struct SingleProducer {
  const AttentionParams& p;
  Producer<T, TensorCopies<T>> keys, values;
  Bias bias;

  // The bias of a block of rows: with whole rows one tile has all keys.
  __device__ __forceinline__ void bias_rows(int index, int head, int row0, int number) {
    if (T::kKeepsBias && index != int(blockIdx.x)) return;
    if (!T::kWholeRows || number == 0) bias.single_rows(head, row0, key_step<T>(number));
  }
  __device__ __forceinline__ void resident() {
    const int blocks = row_blocks<T>(p.queries);
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
      const HeadPlace head(p, index);
      keys.keys(head, 0);
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        keys.queries(head, block * kGroupRows);
#pragma unroll 1
        for (int number = 0; number < T::Keys::kCount; ++number) {
          bias_rows(index, index, block * kGroupRows, number);
          if (block == 0 && number == 0) values.values(head, 0);
        }
      }
    }
  }
  __device__ __forceinline__ void streaming() {
    for_each_step<T>(p, [this](const WorkTile<T>& item, const HeadPlace& head, int number) {
      const int key0 = key_step<T>(number) * T::kBlockN;
      keys.keys(head, key0);
      if (number == 0) keys.queries(head, item.row0);
      bias_rows(item.index, item.head_index, item.row0, number);
      values.values(head, key0);
    });
  }
};

template <class T, class Bias>
__device__ __forceinline__ void copy_with_bias(const AttentionParams& p,
                                               const AttentionTensorMaps& maps,
                                               const PipelinedShared<T>& shared, const Bias& bias) {
  using Walk = Producer<T, TensorCopies<T>>;
  const Walk walk{p, shared, {p, maps}, {}, {}};
  SingleProducer<T, Bias> copier{p, walk, walk, bias};
  if constexpr (T::kResident) {
    copier.resident();
  } else {
    copier.streaming();
  }
}

template <class T>
__device__ __forceinline__ void produce_all(const AttentionParams& p,
                                            const AttentionTensorMaps& maps,
                                            const PipelinedShared<T>& shared) {
  if constexpr (!T::kBiasTiles) {
    copy_with_bias<T>(p, maps, shared, NoBiasWalk<T>());
  } else if constexpr (T::kWholeRows) {
    using Copies = WholeRowCopies<T>;
    copy_with_bias<T>(p, maps, shared, BiasWalk<T, Copies>(p, Copies(shared)));
  } else {
    using Copies = BoxCopies<T>;
    copy_with_bias<T>(p, maps, shared, BiasWalk<T, Copies>(p, Copies(shared, maps.bias)));
  }
}

// By the warps of the producer warpgroup (kSingleProducer: by the one warp).
template <class T>
__device__ __forceinline__ void produce(const AttentionParams& p, const AttentionTensorMaps* maps,
                                        const PipelinedShared<T>& shared) {
  const int warp = threadIdx.x / kWarpSize % 4;
  if constexpr (T::kSingleProducer) {
    if (threadIdx.x % kWarpSize == 0) produce_all<T>(p, *maps, shared);
  } else if constexpr (T::kTensorCopies) {
    if constexpr (T::kBiasTiles) {
      if (warp >= 2) produce_bias<T>(p, *maps, shared);
    }
    if (warp >= 2 || threadIdx.x % kWarpSize != 0) return;
    Producer<T, TensorCopies<T>>{p, shared, {p, *maps}, {}, {}}.run(warp == 1);
  } else {
    Producer<T, ThreadCopies<T>>{p, shared, {p, shared}, {}, {}}.run(warp >= 2);
  }
}

}  // namespace vitune
