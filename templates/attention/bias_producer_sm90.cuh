// templates/attention/bias_producer_sm90.cuh -- The bias of scores by way of shared memory: copies.
//
// Two of the producer warps bring a 16-bit bias. Three kinds of copies:
//   kWholeRows  rows follow each other without gaps and are short (or all are the same one): all
//               keys of a tile's rows by one bulk copy, from any address
//   kBiasBoxes  rows begin at multiples of sixteen bytes: a step's keys by TMA
//   else        a step's keys, sixteen bytes at a time by cp.async, from any address
// A copy from any address begins at the multiple of sixteen bytes before it; sixteen bytes that
// hold no value of their rows are never touched.
#pragma once

#include "attention/bias_sm90.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/params.cuh"
#include "attention/shared_sm90.cuh"
#include "attention/tile_scheduler_sm90.cuh"
#include "primitives/copy.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// The barriers of all kinds of copies: a slot for each warpgroup.
template <class T>
struct BiasSlots {
  const PipelinedShared<T>& shared;
  u32 phases = 0;  // parity of each slot's phase

  // Until the slot's tile has been read.
  __device__ __forceinline__ void await(int slot) {
    mbarrier_wait(shared.bias_empty(slot), (phases >> slot & 1) ^ 1);
    phases ^= 1u << slot;
  }
  // The same before bulk copies: they are of another proxy than the loads that read the tile, and
  // without a fence between them an H200 wrote too early once in two hundred launches.
  __device__ __forceinline__ void await_for_bulk(int slot) {
    await(slot);
    fence_proxy_async();
  }
};

// Whole rows, by one thread.
template <class T>
struct WholeRowCopies : BiasSlots<T> {
  __device__ __forceinline__ explicit WholeRowCopies(const PipelinedShared<T>& shared)
      : BiasSlots<T>{shared} {}

  // `count` rows from row0 on; all keys, whatever the step.
  template <class Tile>
  __device__ __forceinline__ void copy(int slot, const BiasRows& bias, int row0, int count, int) {
    const u64 start = bias.row(row0) & ~u64(15);
    const u64 end = bias.row(row0) + 2 * T::kKeys * (Tile::kOneRow ? 1 : count);
    const u32 bytes = u32(end - start + 15) & ~15u;
    this->await_for_bulk(slot);
    mbarrier_expect(this->shared.bias_full(slot), bytes);
    copy_bytes(this->shared.bias(slot), start, bytes, this->shared.bias_full(slot));
  }
  __device__ __forceinline__ void finish() const {}
};

// Boxes of a step's keys, by one thread.
template <class T>
struct BoxCopies : BiasSlots<T> {
  const void* map;

  __device__ __forceinline__ BoxCopies(const PipelinedShared<T>& shared, const void* bias_map)
      : BiasSlots<T>{shared}, map(bias_map) {}

  // Rows and keys that the bias does not have become zeros.
  template <class Tile>
  __device__ __forceinline__ void copy(int slot, const BiasRows& bias, int row0, int, int step) {
    constexpr int kBoxRows = T::kBiasBoxRows;
    const u32 full = this->shared.bias_full(slot);
    this->await_for_bulk(slot);
    mbarrier_expect(full, Tile::kCopiedBytes);
#pragma unroll
    for (int row = 0; row < Tile::kRows; row += kBoxRows) {
      copy_box(this->shared.bias(slot) + row * Tile::kPitch, map, full, step * T::kBlockN,
               row0 + row, bias.head, bias.batch);
    }
  }
  __device__ __forceinline__ void finish() const {}
};

// Steps of rows, by two warps; four threads share a row.
template <class T>
struct StepCopies : BiasSlots<T> {
  static constexpr int kLanes = 4;
  int lane, first;

  __device__ __forceinline__ explicit StepCopies(const PipelinedShared<T>& shared)
      : BiasSlots<T>{shared},
        lane(threadIdx.x % T::kBiasThreads % kLanes),
        first(threadIdx.x % T::kBiasThreads / kLanes) {}

  template <class Tile>
  __device__ __forceinline__ void copy(int slot, const BiasRows& bias, int row0, int count,
                                       int step) {
    constexpr int kLast = T::Keys::kCount - 1;
    this->await(slot);
    if (Tile::kWidth > T::kBlockN) {
      copy_keys<Tile, T::kKeys>(slot, bias.row(row0), bias.pitch, count);
    } else if (step == kLast) {
      copy_keys<Tile, T::Keys::kTailKeys>(slot, bias.row(row0) + 2 * kLast * T::kBlockN, bias.pitch,
                                          count);
    } else {
      copy_keys<Tile, 0>(slot, bias.row(row0) + 2 * step * T::kBlockN, bias.pitch, count);
    }
    mbarrier_arrive_when_copied(this->shared.bias_full(slot));
  }
  __device__ __forceinline__ void finish() const {
    copy_commit();
    copy_wait<0>();
  }

 private:
  // From address `at` on; kKeys of each row, or 0 where there are more than a tile holds.
  template <class Tile, int kKeys>
  __device__ __forceinline__ void copy_keys(int slot, u64 at, i64 pitch, int count) const {
    constexpr int kRowsPerPass = T::kBiasThreads / kLanes;
    at += first * pitch;
    u32 to = this->shared.bias(slot) + first * Tile::kPitch + 16 * lane;
#pragma unroll
    for (int row = 0; row < Tile::kRows; row += kRowsPerPass) {
      if (row + first < count) copy_row<Tile, kKeys>(to, at);
      at += kRowsPerPass * pitch;
      to += kRowsPerPass * Tile::kPitch;
    }
  }
  template <class Tile, int kKeys>
  __device__ __forceinline__ void copy_row(u32 to, u64 at) const {
    const char* from = reinterpret_cast<const char*>(at & ~u64(15)) + 16 * lane;
    const int bytes = int(at & 15) + 2 * kKeys - 16 * lane;
#pragma unroll
    for (int i = 0; i < Tile::kChunks; i += kLanes) {
      if (i + kLanes > Tile::kChunks && i + lane >= Tile::kChunks) continue;
      // Chunks before the last two are full.
      const bool checked = kKeys > 0 && 16 * (i + kLanes) > 2 * kKeys;
      if (!checked || 16 * i < bytes) copy_chunk<16>(to + 16 * i, from + 16 * i, true);
    }
  }
};

// Brings tiles in the order in which the consumers read them.
template <class T, class Copies>
struct BiasWalk {
  const AttentionParams& p;
  Copies copies;
  int rows;  // of the consumer warpgroups; those of the swap-AB tail follow

  __device__ __forceinline__ BiasWalk(const AttentionParams& params, const Copies& by)
      : p(params), copies(by), rows(p.queries - tail_rows<T>(p.queries)) {}

  __device__ __forceinline__ void group_rows(int group, const BiasRows& bias, int row0, int step) {
    if (T::kCausal && !T::kWholeRows && step * T::kBlockN >= row0 + kGroupRows) return;
    copies.template copy<typename T::BiasTile>(group, bias, row0, min(kGroupRows, rows - row0),
                                               step);
  }
  __device__ __forceinline__ void tail_rows_after(const BiasRows& bias, int step) {
    if constexpr (T::kSwapAbRows > 0) {
      if (rows == p.queries) return;
      copies.template copy<typename T::SwapAbBiasTile>(T::kGroups, bias, rows, p.queries - rows,
                                                       step);
    }
  }
  // Those of the only consumer warpgroup (SingleProducer).
  __device__ __forceinline__ void single_rows(int head_index, int row0, int step) {
    group_rows(0, of_head(head_index), row0, step);
  }
  __device__ __forceinline__ void streaming() {
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
      if (T::kKeepsBias && index != int(blockIdx.x)) return;
      const WorkTile<T> item(p, index);
      const BiasRows bias = of_head(item.head_index);
#pragma unroll 1
      for (int number = 0; number < (T::kWholeRows ? 1 : item.steps); ++number) {
        const int step = key_step<T>(number);
#pragma unroll 1
        for (int group = 0; group < T::kGroups; ++group) {
          const int row0 = item.row0 + group * kGroupRows;
          if (row0 < item.end) group_rows(group, bias, row0, step);
        }
        if (item.last) tail_rows_after(bias, step);
      }
    }
  }
  // In the order in which consume_resident() gives blocks to the warpgroups, on into the next head.
  // The blocks of one head go through the steps together. A block of the next head may have to wait
  // until the last blocks of this head release its keys, so it may not hold up their tiles.
  __device__ __forceinline__ void resident() {
    const int blocks = row_blocks<T>(p.queries), groups = resident_groups<T>(blocks);
    int next = 0;  // warpgroup of the next block
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
      if (T::kKeepsBias && index != int(blockIdx.x)) return;
      const BiasRows bias = of_head(index);
#pragma unroll 1
      for (int block = 0; block < blocks; block += groups) {
        const int count = min(groups, blocks - block);
#pragma unroll 1
        for (int number = 0; number < (T::kWholeRows ? 1 : T::Keys::kCount); ++number) {
#pragma unroll 1
          for (int i = 0; i < count; ++i) {
            const int group = next + i < groups ? next + i : next + i - groups;
            group_rows(group, bias, (block + i) * kGroupRows, key_step<T>(number));
          }
          if (number == 0 && block + groups >= blocks) tail_rows_after(bias, 0);
        }
        next = next + count < groups ? next + count : next + count - groups;
      }
    }
  }
  __device__ __forceinline__ void run() {
    if constexpr (T::kResident) {
      resident();
    } else {
      streaming();
    }
    copies.finish();
  }

 private:
  __device__ __forceinline__ BiasRows of_head(int index) const {
    const HeadPlace head(p, index);
    return BiasRows(p, head.batch, head.head);
  }
};

template <class T, class Copies>
__device__ __forceinline__ void walk_bias(const AttentionParams& p, const Copies& copies) {
  BiasWalk<T, Copies>(p, copies).run();
}

// By warps 2 and 3 of the producer warpgroup.
template <class T>
__device__ __forceinline__ void produce_bias(const AttentionParams& p,
                                             const AttentionTensorMaps& maps,
                                             const PipelinedShared<T>& shared) {
  const bool first = threadIdx.x % T::kBiasThreads == 0;
  if constexpr (T::kWholeRows) {
    if (first) walk_bias<T>(p, WholeRowCopies<T>(shared));
  } else if constexpr (T::kBiasBoxes) {
    if (first) walk_bias<T>(p, BoxCopies<T>(shared, maps.bias));
  } else {
    walk_bias<T>(p, StepCopies<T>(shared));
  }
}

}  // namespace vitune
