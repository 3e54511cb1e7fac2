// templates/attention/bias_sm90.cuh -- The bias of scores by way of shared memory: how it is added.
//
// Where tiles come by TMA, producer warps bring a 16-bit bias too (bias_producer_sm90.cuh). There
// is a tile for each consumer warpgroup and one for the swap-AB tail. Rows may begin in the middle
// of a word: copies start at the multiple of sixteen bytes before.
//   kWholeRows  a tile holds all keys of its rows as they lie in memory
//   else        a tile holds one step's keys, rows an odd number of sixteen bytes apart
// With kBiasInRegisters a CTA's items all have the same bias (windows often share one per head): a
// tile is copied once and stays, in the order of the threads' registers.
#pragma once

#include "attention/config_sm90_pipelined.cuh"
#include "attention/division.cuh"
#include "attention/group_attention.cuh"
#include "attention/params.cuh"
#include "attention/shared_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"

namespace vitune {

// Where the 16-bit bias of a head's rows is.
struct BiasRows {
  u64 first;        // address
  i64 pitch;        // bytes to the next row
  int batch, head;  // of the bias: 0 where it is broadcast

  __device__ __forceinline__ BiasRows(const AttentionParams& p, int of_batch, int of_head)
      : pitch(2 * p.bias_view.row),
        batch(p.bias_view.batch != 0 ? modulo(of_batch, p.by_bias_batches) : 0),
        head(p.bias_view.head != 0 ? of_head : 0) {
    first = reinterpret_cast<u64>(static_cast<const u16*>(p.bias) + batch * p.bias_view.batch +
                                  head * p.bias_view.head);
  }
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

// A consumer warpgroup's side.
template <class T>
struct GroupBias {
  static constexpr bool kMatrices = T::kBiasAligned && !T::kWholeRows;
  static constexpr int kKeptBytes = 16 * kGroupThreads;  // of sixteen keys of all rows

  u32 tile, full;
  u32 parity = 0;
  u32 first[2];  // this thread's first keys of rows g and g + 8, or [0] its row of matrices

  __device__ __forceinline__ GroupBias(const PipelinedShared<T>& shared, int warpgroup)
      : tile(shared.bias(warpgroup)), full(shared.bias_full(warpgroup)) {}
  // Rows past the end read the last one, as ScoreRows do: nothing was copied to theirs, and a warp
  // looks at all of its rows before it weighs them (OnlineSoftmax::extreme).
  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& place) {
    using Tile = typename T::BiasTile;
    const int block0 = place.row0 - threadIdx.x / kWarpSize % 4 * 16;
    if constexpr (kMatrices) {
      const int lane = 4 * place.g + place.t;
      const int row = min(place.row0 + lane % 16, p.queries - 1) - block0;
      first[0] = tile + row * Tile::kPitch + lane / 16 * 16;
      return;
    }
    const BiasRows rows(p, place.batch, place.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(place.row0 + 8 * half + place.g, p.queries - 1);
      const u64 start = rows.row(T::kWholeRows ? block0 : row);
      first[half] = tile + (row - block0) * Tile::kPitch + u32(start & 15) + 4 * place.t;
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
    const u32 ahead = T::kWholeRows ? 2 * key0 : 0;
    if constexpr (kMatrices) {
      BiasValues<T>::template add_matrices<kWidth>(s, scale, first[0]);
    } else {
      const u32 from[2] = {first[0] + ahead, first[1] + ahead};
      BiasValues<T>::template add_rows<kWidth>(s, scale, from);
    }
    if (last) release();
  }
  __device__ __forceinline__ void release() {
    if constexpr (T::kKeepsBias) return;
    warp_arrive(full + 8 * T::kBiasSlots);  // bias_empty()
    parity ^= 1;
  }
};

}  // namespace vitune
