// templates/attention/bias_copies.cuh -- The bias of scores by way of shared memory: how it comes.
//
// Two warps of the copying warpgroup bring a 16-bit bias; each tile has two barriers, as those of
// keys have. Three kinds of copies:
//   kWholeRows  rows follow each other without gaps and are short (or all are the same one): all
//               keys of a tile's rows by one bulk copy, from any address
//   kBiasBoxes  rows begin at multiples of sixteen bytes: a step's keys by one instruction, after
//               a tensor map
//   else        a step's keys, sixteen bytes at a time by cp.async, from any address
// From any address means: from the multiple of sixteen bytes before, with what lies there; sixteen
// bytes that hold no value of their rows are never touched.
#pragma once

#include "attention/bias_tiles.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/params.cuh"
#include "attention/pipeline.cuh"
#include "attention/pipelined_item.cuh"
#include "primitives/copy.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// What all kinds of copies have in common: slots in turn.
template <class T>
struct BiasSlots {
  const Pipeline<T>& pipe;
  u32 phases = 0;  // parity of each slot's phase

  // Until the slot's tile has been read.
  __device__ __forceinline__ void await(int slot) {
    mbarrier_wait(pipe.bias_free(slot), (phases >> slot & 1) ^ 1);
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
  __device__ __forceinline__ explicit WholeRowCopies(const Pipeline<T>& pipe)
      : BiasSlots<T>{pipe} {}

  // `count` rows from row0 on; all keys, whatever the step.
  template <class Tile>
  __device__ __forceinline__ void copy(int slot, const BiasRows& bias, int row0, int count, int) {
    const u64 start = bias.row(row0) & ~u64(15);
    const u64 end = bias.row(row0) + 2 * T::kKeys * (Tile::kOneRow ? 1 : count);
    const u32 bytes = u32(end - start + 15) & ~15u;
    this->await_for_bulk(slot);
    mbarrier_expect(this->pipe.bias_full(slot), bytes);
    copy_bytes(this->pipe.bias(slot), start, bytes, this->pipe.bias_full(slot));
  }
  __device__ __forceinline__ void finish() const {}
};

// Boxes of a step's keys, by one thread.
template <class T>
struct BoxCopies : BiasSlots<T> {
  const void* map;

  __device__ __forceinline__ BoxCopies(const Pipeline<T>& pipe, const void* bias_map)
      : BiasSlots<T>{pipe}, map(bias_map) {}

  // Rows and keys that the bias does not have become zeros.
  template <class Tile>
  __device__ __forceinline__ void copy(int slot, const BiasRows& bias, int row0, int, int step) {
    constexpr int kBoxRows = T::kBiasBoxRows;
    const u32 full = this->pipe.bias_full(slot);
    this->await_for_bulk(slot);
    mbarrier_expect(full, Tile::kCopiedBytes);
#pragma unroll
    for (int row = 0; row < Tile::kRows; row += kBoxRows) {
      copy_box(this->pipe.bias(slot) + row * Tile::kPitch, map, full, step * T::kBlockN, row0 + row,
               bias.head, bias.batch);
    }
  }
  __device__ __forceinline__ void finish() const {}
};

// Steps of rows, by two warps; four threads share a row.
template <class T>
struct StepCopies : BiasSlots<T> {
  static constexpr int kLanes = 4;
  int lane, first;

  __device__ __forceinline__ explicit StepCopies(const Pipeline<T>& pipe)
      : BiasSlots<T>{pipe},
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
    mbarrier_arrive_when_copied(this->pipe.bias_full(slot));
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
    u32 to = this->pipe.bias(slot) + first * Tile::kPitch + 16 * lane;
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
    for (int i = 0; i < Tile::kPieces; i += kLanes) {
      if (i + kLanes > Tile::kPieces && i + lane >= Tile::kPieces) continue;
      // Pieces before the last two are full.
      const bool checked = kKeys > 0 && 16 * (i + kLanes) > 2 * kKeys;
      if (!checked || 16 * i < bytes) copy_chunk<16>(to + 16 * i, from + 16 * i, true);
    }
  }
};

// Brings tiles in the order in which they are wanted.
template <class T, class Copies>
struct BiasWalk {
  const AttentionParams& p;
  Copies copies;
  int rows;  // that computing warpgroups take; spare ones follow

  __device__ __forceinline__ BiasWalk(const AttentionParams& params, const Copies& by)
      : p(params), copies(by), rows(p.queries - spare_rows<T>(p.queries)) {}

  __device__ __forceinline__ void group_rows(int group, const BiasRows& bias, int row0, int step) {
    if (T::kCausal && !T::kWholeRows && step * T::kBlockN >= row0 + kGroupRows) return;
    copies.template copy<typename T::BiasTile>(group, bias, row0, min(kGroupRows, rows - row0),
                                               step);
  }
  __device__ __forceinline__ void spare_rows_after(const BiasRows& bias, int step) {
    if constexpr (T::kSpareRows > 0) {
      if (rows == p.queries) return;
      copies.template copy<typename T::SpareBiasTile>(T::kGroups, bias, rows, p.queries - rows,
                                                      step);
    }
  }
  // Those of the only computing warpgroup (lone_copier.cuh).
  __device__ __forceinline__ void lone_rows(int head_index, int row0, int step) {
    group_rows(0, of_head(head_index), row0, step);
  }
  __device__ __forceinline__ void streaming() {
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_item<T>(index)) {
      if (T::kKeepsBias && index != int(blockIdx.x)) return;
      const PipelinedItem<T> item(p, index);
      const BiasRows bias = of_head(item.head_index);
#pragma unroll 1
      for (int turn = 0; turn < (T::kWholeRows ? 1 : item.steps); ++turn) {
        const int step = step_of_turn<T>(turn);
#pragma unroll 1
        for (int group = 0; group < T::kGroups; ++group) {
          const int row0 = item.row0 + group * kGroupRows;
          if (row0 < item.end) group_rows(group, bias, row0, step);
        }
        if (item.last) spare_rows_after(bias, step);
      }
    }
  }
  // As compute_resident() deals blocks of rows to warpgroups: in turn, on into the next head.
  // Those of one head go through the steps together. One of the next head may have to wait for the
  // last ones of this head to give its keys back, so it may not hold up their tiles.
  __device__ __forceinline__ void resident() {
    const int blocks = row_blocks<T>(p.queries), groups = resident_groups<T>(blocks);
    int next = 0;  // warpgroup of the next block
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index += gridDim.x) {
      if (T::kKeepsBias && index != int(blockIdx.x)) return;
      const BiasRows bias = of_head(index);
#pragma unroll 1
      for (int block = 0; block < blocks; block += groups) {
        const int count = min(groups, blocks - block);
#pragma unroll 1
        for (int turn = 0; turn < (T::kWholeRows ? 1 : T::Keys::kCount); ++turn) {
#pragma unroll 1
          for (int i = 0; i < count; ++i) {
            const int group = next + i < groups ? next + i : next + i - groups;
            group_rows(group, bias, (block + i) * kGroupRows, step_of_turn<T>(turn));
          }
          if (turn == 0 && block + groups >= blocks) spare_rows_after(bias, 0);
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

// The part of the copying warpgroup's warps 2 and 3.
template <class T>
__device__ __forceinline__ void copy_bias(const AttentionParams& p, const AttentionTensorMaps& maps,
                                          const Pipeline<T>& pipe) {
  const bool first = threadIdx.x % T::kBiasThreads == 0;
  if constexpr (T::kWholeRows) {
    if (first) walk_bias<T>(p, WholeRowCopies<T>(pipe));
  } else if constexpr (T::kBiasBoxes) {
    if (first) walk_bias<T>(p, BoxCopies<T>(pipe, maps.bias));
  } else {
    walk_bias<T>(p, StepCopies<T>(pipe));
  }
}

}  // namespace vitune
