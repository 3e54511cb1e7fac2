// templates/attention/bias_tiles.cuh -- The bias of scores by way of shared memory.
//
// Where tiles come by tensor maps, warps of the copying warpgroup are free to bring the bias. A
// 16-bit bias may begin anywhere, so copies start at the multiple of sixteen bytes before and take
// what lies there along; they never touch sixteen bytes that hold no value of their rows. There is
// a tile for each computing warpgroup and one for spare rows, each with two barriers as the tiles
// of keys have. With kBiasInRegisters a CTA's items all have the same bias (windows often share one
// per head): a tile is copied once and stays.
//   kBiasWholeRows  rows follow each other without gaps and are short (or all are the same one): a
//                   tile holds all keys of its rows as they lie in memory, by one bulk copy
//   else            a tile holds one step's keys, sixteen bytes at a time by cp.async
#pragma once

#include "attention/config_sm90_pipelined.cuh"
#include "attention/group_attention.cuh"
#include "attention/params.cuh"
#include "attention/pipeline.cuh"
#include "attention/pipelined_item.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

// Where the 16-bit bias of a head's rows is.
struct BiasRows {
  u64 first;  // address
  i64 pitch;  // bytes to the next row

  __device__ __forceinline__ BiasRows(const AttentionParams& p, int batch, int head)
      : first(reinterpret_cast<u64>(static_cast<const u16*>(p.bias) +
                                    (batch % p.bias_view.batches) * p.bias_view.batch +
                                    head * p.bias_view.head)),
        pitch(2 * p.bias_view.row) {}
  __device__ __forceinline__ u64 row(int index) const { return first + index * pitch; }
};

// Adds to scaled scores of 16 rows what lies in a tile.
template <class T>
struct BiasValues {
  using E = Element<T::kBias == 3 ? 1 : 0>;

  static __device__ __forceinline__ float one(u32 at) { return E::unpack(load_shared_u16(at)); }
  // Two neighbouring keys; they may begin in the middle of a word.
  static __device__ __forceinline__ void add_two(float* two, float scale, u32 at) {
    if constexpr (T::kBiasVector >= 2) {
      add_word(two, scale, load_shared(at));
    } else {
      two[0] = __fmaf_rn(two[0], scale, one(at));
      two[1] = __fmaf_rn(two[1], scale, one(at + 2));
    }
  }
  static __device__ __forceinline__ void add_word(float* two, float scale, u32 word) {
    two[0] = __fmaf_rn(two[0], scale, E::low(word));
    two[1] = __fmaf_rn(two[1], scale, E::high(word));
  }
  static __device__ __forceinline__ u32 two(u32 at) {
    if constexpr (T::kBiasVector >= 2) return load_shared(at);
    return load_shared_u16(at) | u32(load_shared_u16(at + 2)) << 16;
  }
  // From what GroupBias::keep() made of a tile.
  template <int kWidth, int kPairBytes, int kMaxTiles>
  static __device__ __forceinline__ void add_kept(float (&s)[1][kMaxTiles][4], float scale,
                                                  u32 from) {
#pragma unroll
    for (int j = 0; j < kWidth / 8; j += 2) {
      const uint4 words = load_shared_16(from + j / 2 * kPairBytes);
      add_word(&s[0][j][0], scale, words.x);
      add_word(&s[0][j][2], scale, words.y);
      if (j + 1 == kWidth / 8) continue;
      add_word(&s[0][j + 1][0], scale, words.z);
      add_word(&s[0][j + 1][2], scale, words.w);
    }
  }
  // From matrices of eight rows and keys; `from` is the row that this lane names.
  template <int kWidth, int kMaxTiles>
  static __device__ __forceinline__ void add_matrices(float (&s)[1][kMaxTiles][4], float scale,
                                                      u32 from) {
#pragma unroll
    for (int j = 0; j < kWidth / 8; j += 2) {
      u32 words[4];  // rows g and g + 8 of tile j, of tile j + 1
      ldmatrix_x4(words, from + 16 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (j + i / 2 < kWidth / 8) add_word(&s[0][j + i / 2][i % 2 * 2], scale, words[i]);
      }
    }
  }
  // From this thread's first keys of rows g and g + 8.
  template <int kWidth, int kMaxTiles>
  static __device__ __forceinline__ void add_rows(float (&s)[1][kMaxTiles][4], float scale,
                                                  const u32 (&from)[2]) {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        add_two(&s[0][j][2 * half], scale, from[half] + 16 * j);
      }
    }
  }
};

// A computing warpgroup's side.
template <class T>
struct GroupBias {
  static constexpr bool kMatrices = T::kBiasAligned && !T::kBiasWholeRows;
  static constexpr int kKeptBytes = 16 * kGroupThreads;  // of sixteen keys of all rows

  u32 tile, full;
  u32 parity = 0;
  u32 first[2];  // this thread's first keys of rows g and g + 8, or [0] its row of matrices

  __device__ __forceinline__ GroupBias(const Pipeline<T>& pipe, int warpgroup)
      : tile(pipe.bias(warpgroup)), full(pipe.bias_full(warpgroup)) {}
  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& place) {
    using Tile = typename T::BiasTile;
    const int row = threadIdx.x / kWarpSize % 4 * 16;
    if constexpr (kMatrices) {
      const int lane = 4 * place.g + place.t;
      first[0] = tile + (row + lane % 16) * Tile::kPitch + lane / 16 * 16;
      return;
    }
    const BiasRows rows(p, place.batch, place.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = 8 * half + place.g;
      const u64 start = rows.row(place.row0 + (T::kBiasWholeRows ? -row : own));
      first[half] = tile + (row + own) * Tile::kPitch + u32(start & 15) + 4 * place.t;
    }
  }
  // With kBiasInRegisters: before the first item, whose rows have the bias of all others. The tile
  // is put in the order of the threads' registers.
  template <class Barrier>
  __device__ __forceinline__ void keep(const AttentionParams& p, const RowPlace& place,
                                       Barrier&& barrier) {
    constexpr int kPairs = ceil_div(T::kKeys, 16);
    u32 words[kPairs][4];
    begin(p, place);
    mbarrier_wait(full, 0);
#pragma unroll
    for (int i = 0; i < 4 * kPairs; ++i) {
      words[i / 4][i % 4] = BiasValues<T>::two(first[i % 2] + 16 * (i / 2));
    }
    barrier();
    first[0] = tile + 16 * (threadIdx.x % kGroupThreads);
#pragma unroll
    for (int i = 0; i < 4 * kPairs; ++i) {
      store_shared(first[0] + i / 4 * kKeptBytes + 4 * (i % 4), words[i / 4][i % 4]);
    }
  }
  // Adds the bias of a step's keys; `last`: the tile is not needed for this item any more.
  template <int kWidth, int kMaxTiles>
  __device__ __forceinline__ void add(float (&s)[1][kMaxTiles][4], float scale, int key0,
                                      bool last) {
    if constexpr (T::kKeepsBias) {
      BiasValues<T>::template add_kept<kWidth, kKeptBytes>(s, scale,
                                                           first[0] + key0 / 16 * kKeptBytes);
      return;
    }
    mbarrier_wait(full, parity);
    const u32 ahead = T::kBiasWholeRows ? 2 * key0 : 0;
    if constexpr (kMatrices) {
      BiasValues<T>::template add_matrices<kWidth>(s, scale, first[0]);
    } else {
      const u32 from[2] = {first[0] + ahead, first[1] + ahead};
      BiasValues<T>::template add_rows<kWidth>(s, scale, from);
    }
    if (last) give_back();
  }
  __device__ __forceinline__ void give_back() {
    if constexpr (T::kKeepsBias) return;
    warp_arrive(full + 8 * T::kBiasSlots);  // bias_free()
    parity ^= 1;
  }
};

// What both kinds of copies have in common: slots in turn.
template <class T>
struct BiasSlots {
  const Pipeline<T>& pipe;
  u32 phases = 0;  // parity of each slot's phase

  __device__ __forceinline__ void await(int slot) {
    mbarrier_wait(pipe.bias_free(slot), (phases >> slot & 1) ^ 1);
    phases ^= 1u << slot;
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
    this->await(slot);
    mbarrier_expect(this->pipe.bias_full(slot), bytes);
    copy_bytes(this->pipe.bias(slot), start, bytes, this->pipe.bias_full(slot));
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

  __device__ __forceinline__ BiasWalk(const AttentionParams& params, const Pipeline<T>& pipe)
      : p(params), copies(pipe), rows(p.queries - spare_rows<T>(p.queries)) {}

  __device__ __forceinline__ void group_rows(int group, const BiasRows& bias, int row0, int step) {
    if (T::kCausal && !T::kBiasWholeRows && step * T::kBlockN >= row0 + kGroupRows) return;
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
  __device__ __forceinline__ void streaming() {
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index = next_item<T>(index)) {
      if (T::kKeepsBias && index != int(blockIdx.x)) return;
      const PipelinedItem<T> item(p, index);
      const BiasRows bias = of_head(item.head_index);
#pragma unroll 1
      for (int turn = 0; turn < (T::kBiasWholeRows ? 1 : item.steps); ++turn) {
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
        for (int turn = 0; turn < (T::kBiasWholeRows ? 1 : T::Keys::kCount); ++turn) {
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
    return BiasRows(p, u32(index) / u32(p.heads), u32(index) % u32(p.heads));
  }
};

// The part of the copying warpgroup's warps 2 and 3.
template <class T>
__device__ __forceinline__ void copy_bias(const AttentionParams& p, const Pipeline<T>& pipe) {
  if constexpr (!T::kBiasWholeRows) {
    BiasWalk<T, StepCopies<T>>(p, pipe).run();
  } else if (threadIdx.x % T::kBiasThreads == 0) {
    BiasWalk<T, WholeRowCopies<T>>(p, pipe).run();
  }
}

}  // namespace vitune
