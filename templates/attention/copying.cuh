// templates/attention/copying.cuh -- What the copying warps of a pipelined kernel do.
//
// Both kinds of copies go through the same items and steps; the ring's barriers keep them as far
// ahead of the computing warps as there are tiles.
#pragma once

#include "attention/config_sm90_pipelined.cuh"
#include "attention/group_attention.cuh"
#include "attention/params.cuh"
#include "attention/pipeline.cuh"
#include "attention/pipelined_item.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

// By cp.async, for any stride and alignment from 4 bytes on: two warps load keys and queries, two
// the values.
template <class T>
struct ThreadCopies {
  const AttentionParams& p;
  const Pipeline<T>& pipe;
  int thread = threadIdx.x % T::kCopyThreads;
  static constexpr int kDealt = T::kPermuted ? T::kKeyRows / 16 * 16 : 0;

  __device__ __forceinline__ ThreadCopies(const AttentionParams& params, const Pipeline<T>& pipe_)
      : p(params), pipe(pipe_) {}
  __device__ __forceinline__ void keys(u32 tile, u32 full, const HeadPlace& head, int key0) const {
    stream_panels<typename T::KeyTile, T::kKeyRows, kDealt, T::kCopyThreads, T::kCopyBytes>(
        tile, head.k + key0 * p.k_view.row, p.k_view.row, T::kKeys - key0, thread, Deal());
    mbarrier_arrive_when_copied(full);
  }
  __device__ __forceinline__ void values(u32 tile, u32 full, const HeadPlace& head,
                                         int key0) const {
    stream_panels<typename T::ValueTile, T::kValueRows, kDealt, T::kCopyThreads, T::kCopyBytes>(
        tile, head.v + key0 * p.v_view.row, p.v_view.row, T::kKeys - key0, thread, Deal());
    mbarrier_arrive_when_copied(full);
  }
  __device__ __forceinline__ void queries(u32 tile, u32 full, const HeadPlace& head,
                                          int row0) const {
    stream_panels<typename T::QueryTile, kGroupRows, 0, T::kCopyThreads, T::kCopyBytes>(
        tile, head.q + row0 * p.q_view.row, p.q_view.row, p.queries - row0, thread,
        [](int row) { return row; });
    mbarrier_arrive_when_copied(full);
  }
  // Before a copying thread ends.
  __device__ __forceinline__ void finish() const {
    copy_commit();
    copy_wait<0>();
  }

 private:
  struct Deal {
    __device__ __forceinline__ int operator()(int row) const {
      return place_of_key<T, T::kKeyRows>(row);
    }
  };
};

// By the tensor memory accelerator: one thread starts the copies of keys and queries, one those of
// the values.
template <class T>
struct TensorCopies {
  const AttentionParams& p;
  const AttentionTensorMaps& maps;

  __device__ __forceinline__ TensorCopies(const AttentionParams& params,
                                          const AttentionTensorMaps& maps_)
      : p(params), maps(maps_) {}
  __device__ __forceinline__ void keys(u32 tile, u32 full, const HeadPlace& head, int key0) const {
    copy_tile<typename T::KeyTile, T::kKeyRows>(tile, maps.k, full, key0, kv_head(head),
                                                head.batch);
  }
  __device__ __forceinline__ void values(u32 tile, u32 full, const HeadPlace& head,
                                         int key0) const {
    copy_tile<typename T::ValueTile, T::kValueRows>(tile, maps.v, full, key0, kv_head(head),
                                                    head.batch);
  }
  __device__ __forceinline__ void queries(u32 tile, u32 full, const HeadPlace& head,
                                          int row0) const {
    copy_tile<typename T::QueryTile, kGroupRows>(tile, maps.q, full, row0, head.head, head.batch);
  }
  __device__ __forceinline__ void finish() const {}

 private:
  __device__ __forceinline__ int kv_head(const HeadPlace& head) const {
    return quotient(head.head, p.by_heads_per_kv);
  }
  template <class Tile, int kRows>
  __device__ __forceinline__ void copy_tile(u32 tile, const void* map, u32 full, int row, int head,
                                            int batch) const {
    constexpr int kBoxRows = box_rows(kRows);
    mbarrier_expect(full, Tile::kBytes);
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
#pragma unroll
      for (int box = 0; box < kRows / kBoxRows; ++box) {
        copy_box(tile + panel * Tile::kPanelBytes + box * kBoxRows * Tile::kRowBytes, map, full,
                 panel * Tile::kPanelColumns, row + box * kBoxRows, head, batch);
      }
    }
  }
};

// A copying role's walk: waits for a free tile, has it filled, moves on.
template <class T, class Copies>
struct CopyWalk {
  const AttentionParams& p;
  const Pipeline<T>& pipe;
  Copies copies;
  RingPlace<T::kRing> at;
  RingPlace<T::kQuerySlots> query_at;

  __device__ __forceinline__ void keys(const HeadPlace& head, int key0) {
    mbarrier_wait(pipe.keys_free(at.slot), at.parity ^ 1);
    copies.keys(pipe.keys(at.slot), pipe.keys_full(at.slot), head, key0);
    at.advance();
  }
  __device__ __forceinline__ void values(const HeadPlace& head, int key0) {
    mbarrier_wait(pipe.values_free(at.slot), at.parity ^ 1);
    copies.values(pipe.values(at.slot), pipe.values_full(at.slot), head, key0);
    at.advance();
  }
  __device__ __forceinline__ void queries(const HeadPlace& head, int row0) {
    mbarrier_wait(pipe.queries_free(query_at.slot), query_at.parity ^ 1);
    copies.queries(pipe.queries(query_at.slot), pipe.queries_full(query_at.slot), head, row0);
    query_at.advance();
  }

  // Streaming: an item's first keys, its queries, its other keys.
  __device__ __forceinline__ void keys_streaming() {
    for_each_step<T>(p, [this](const PipelinedItem<T>& item, const HeadPlace& head, int turn) {
      keys(head, step_of_turn<T>(turn) * T::kBlockN);
      if (turn > 0) return;
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
    for (int index = blockIdx.x; index < p.items; index = next_item<T>(index)) {
      const HeadPlace head(p, index);
      const int next = index + int(gridDim.x);
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        if (block == early && next < p.items) keys(HeadPlace(p, next), 0);
        queries(head, block * kGroupRows);
      }
      if (blocks <= early && next < p.items) keys(HeadPlace(p, next), 0);
    }
  }
  __device__ __forceinline__ void all_values() {
    for_each_step<T>(p, [this](const PipelinedItem<T>&, const HeadPlace& head, int turn) {
      values(head, T::kResident ? 0 : step_of_turn<T>(turn) * T::kBlockN);
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

}  // namespace vitune
