// templates/attention/scores.cuh -- From Q K^T to masked, biased scores: which key each value is.
//
// A warp's scores of 16 rows and W keys are n8 tiles of mma accumulators: in tile j thread (g, t)
// holds two values of row g and two of row g + 8. Softmax does not mind the order of keys as long
// as K and V agree, so with a bias or a mask the keys of each pair of tiles are permuted such that
// a thread owns four neighbours, 4t to 4t + 3: one 8-byte load of a 16-bit bias instead of four.
// The permutation keeps the eight rows that one ldmatrix phase reads in eight different bank
// groups.
#pragma once

#include "attention/config.cuh"
#include "attention/division.cuh"
#include "attention/params.cuh"
#include "attention/shifted_rows.cuh"
#include "primitives/element.cuh"

namespace vitune {

// Key (0..15) within a pair of tiles at index i (0..7) of its tile number `parity`.
template <bool kPermuted>
__device__ __forceinline__ int pair_key(int parity, int i) {
  if constexpr (!kPermuted) return 8 * parity + i;
  return 4 * (i >> 1) + 2 * (parity ^ (i >> 2)) + (i & 1);
}

// Key of value e (0 or 1) of thread t in tile j of kTiles; the last tile of an odd number has no
// pair.
template <class T, int kTiles>
__device__ __forceinline__ int key_of(int j, int t, int e) {
  if (j + 1 == kTiles && kTiles % 2 == 1) return 8 * j + 2 * t + e;
  return 16 * (j / 2) + pair_key<T::kPermuted>(j % 2, 2 * t + e);
}

// One past the largest key that tile j can hold.
template <class T, int kTiles>
__host__ __device__ constexpr int tile_end(int j) {
  const bool alone = j + 1 == kTiles && kTiles % 2 == 1;
  return T::kPermuted && !alone ? 16 * (j / 2) + 16 : 8 * j + 8;
}

// Keys that every step has at least: with a constant token count those of the last one.
template <class T>
inline constexpr int kLeastKeys = T::kKeys > 0 ? T::Keys::kTailKeys : 0;

// Where the rows of one warp are in the problem.
struct RowPlace {
  int row0;  // first of the warp's rows
  int g, t;  // lane / 4 and lane % 4
  int batch, head;
};

// Rows of a score operand that a thread reads: row g + 8 * half of each row tile. Rows past the end
// are clamped: their results are never stored.
template <class T, class Value>
struct ScoreRows {
  const Value* row[T::kRowTiles][2];
  i64 key_stride;

  __device__ __forceinline__ void init(const void* base, const AttentionScoreView& view,
                                       const AttentionDivisor& batches, const RowPlace& place,
                                       int queries) {
    const Value* entry = static_cast<const Value*>(base) +
                         modulo(place.batch, batches) * view.batch + place.head * view.head;
    key_stride = view.key;
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int index = place.row0 + 16 * r + 8 * half + place.g;
        row[r][half] = entry + min(index, queries - 1) * view.row;
      }
    }
  }
};

// Two neighbouring bias values as they are stored.
template <int kBias>
struct BiasPair {  // 16 bit
  using Value = u16;
  using E = Element<kBias == 3 ? 1 : 0>;
  u32 bits = 0;
  __device__ __forceinline__ float low() const { return E::low(bits); }
  __device__ __forceinline__ float high() const { return E::high(bits); }
  __device__ __forceinline__ void load(const u16* p) {
    bits = __ldg(reinterpret_cast<const u32*>(p));
  }
  __device__ __forceinline__ void load_low(const u16* p) { bits |= __ldg(p); }
  __device__ __forceinline__ void load_high(const u16* p) { bits |= u32(__ldg(p)) << 16; }
  static __device__ __forceinline__ void load_quad(BiasPair& a, BiasPair& b, const u16* p) {
    const uint2 words = __ldg(reinterpret_cast<const uint2*>(p));
    a.bits = words.x;
    b.bits = words.y;
  }
};
template <>
struct BiasPair<1> {  // fp32
  using Value = float;
  float x = 0.f, y = 0.f;
  __device__ __forceinline__ float low() const { return x; }
  __device__ __forceinline__ float high() const { return y; }
  __device__ __forceinline__ void load(const float* p) {
    const float2 pair = __ldg(reinterpret_cast<const float2*>(p));
    x = pair.x;
    y = pair.y;
  }
  __device__ __forceinline__ void load_low(const float* p) { x = __ldg(p); }
  __device__ __forceinline__ void load_high(const float* p) { y = __ldg(p); }
  static __device__ __forceinline__ void load_quad(BiasPair& a, BiasPair& b, const float* p) {
    const float4 quad = __ldg(reinterpret_cast<const float4*>(p));
    a.x = quad.x;
    a.y = quad.y;
    b.x = quad.z;
    b.y = quad.w;
  }
};

// The bias of a warp's rows over one step of keys, fetched before the scores are computed so that
// its latency hides behind them. A vector of 2 or 4 keys is used only where the key count is a
// multiple of it, so none straddles the end of a row; 16-bit rows that are not aligned are read as
// aligned words and settled into their places when they are used (shifted_rows.cuh).
template <class T, int kMaxWidth>
struct BiasTile {
  using Pair = BiasPair<T::kBias>;
  using Value = typename Pair::Value;
  static constexpr bool kShifted = T::kBias >= 2 && T::kBiasVector == 1;
  Pair pairs[T::kRowTiles][2][kMaxWidth / 8];
  u32 edges[T::kRowTiles][2];  // of shifted rows

  // For kWidth keys from key0 on. kChecked: those from `limit` on are not read.
  template <int kWidth, bool kChecked>
  __device__ __forceinline__ void load(const ScoreRows<T, Value>& rows, int key0, int limit,
                                       int t) {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Value* row = rows.row[r][half] + key0 * rows.key_stride;
        if constexpr (kShifted) {
          Shifted<kWidth, kChecked>::load(pairs[r][half], edges[r][half], row, limit, t);
          load_values<kWidth / 8, kChecked, kWidth / 16 * 2>(pairs[r][half], row, 1, limit, t);
        } else if constexpr (T::kBiasVector >= 2) {
          load_vectors<kWidth / 8, kChecked>(pairs[r][half], row, limit, t);
        } else {
          load_values<kWidth / 8, kChecked, 0>(pairs[r][half], row,
                                               T::kBiasVector == 0 ? rows.key_stride : 1, limit, t);
        }
      }
    }
    if constexpr (T::kBiasInRegisters) settle_rows<kWidth, kChecked>(rows, limit, t);
  }
  // To be called once after each load() by whole warps, before add(), with the same arguments.
  template <int kWidth, bool kChecked>
  __device__ __forceinline__ void settle(const ScoreRows<T, Value>& rows, int limit, int t) {
    if constexpr (!T::kBiasInRegisters) settle_rows<kWidth, kChecked>(rows, limit, t);
  }
  template <int kWidth>
  __device__ __forceinline__ void add(float (&s)[T::kRowTiles][kMaxWidth / 8][4],
                                      float scale) const {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* two = &s[r][j][2 * half];
          two[0] = __fmaf_rn(two[0], scale, pairs[r][half][j].low());
          two[1] = __fmaf_rn(two[1], scale, pairs[r][half][j].high());
        }
      }
    }
  }

 private:
  template <int kWidth, bool kChecked>
  using Shifted = ShiftedBias<kWidth / 16, kChecked, kChecked ? kLeastKeys<T> : kWidth / 16 * 16>;

  // Steps of keys are multiples of eight, so the phase of a row is that of its first key.
  template <int kWidth, bool kChecked>
  __device__ __forceinline__ void settle_rows(const ScoreRows<T, Value>& rows, int limit, int t) {
    if constexpr (kShifted && kWidth >= 16) {
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Shifted<kWidth, kChecked>::settle(pairs[r][half], edges[r][half], rows.row[r][half],
                                            limit, t);
        }
      }
    }
  }
  template <int kTiles, bool kChecked>
  static __device__ __forceinline__ void load_vectors(Pair (&out)[kMaxWidth / 8], const Value* row,
                                                      int limit, int t) {
#pragma unroll
    for (int j = 0; j + 1 < kTiles; j += 2) {
      const int key = 8 * j + 4 * t;
      Pair a, b;
      if constexpr (T::kBiasVector == 4) {
        if (!kChecked || key < limit) Pair::load_quad(a, b, row + key);
      } else {
        if (!kChecked || key < limit) a.load(row + key);
        if (!kChecked || key + 2 < limit) b.load(row + key + 2);
      }
      out[j] = t < 2 ? a : b;
      out[j + 1] = t < 2 ? b : a;
    }
    if constexpr (kTiles % 2 == 1) {
      const int key = 8 * (kTiles - 1) + 2 * t;
      out[kTiles - 1] = Pair();
      if (!kChecked || key < limit) out[kTiles - 1].load(row + key);
    }
  }
  // Tiles from kFrom on, value by value.
  template <int kTiles, bool kChecked, int kFrom>
  static __device__ __forceinline__ void load_values(Pair (&out)[kMaxWidth / 8], const Value* row,
                                                     i64 step, int limit, int t) {
#pragma unroll
    for (int j = kFrom; j < kTiles; ++j) {
      const int key = key_of<T, kTiles>(j, t, 0);
      out[j] = Pair();
      if (!kChecked || key < limit) out[j].load_low(row + key * step);
      if (!kChecked || key + 1 < limit) out[j].load_high(row + (key + 1) * step);
    }
  }
};

// The bool mask of a warp's rows over one step: byte 2 * (j % 2) + e of word j / 2 of a row is not
// 0 if value e of tile j may be attended to.
template <class T, int kMaxWidth>
struct MaskTile {
  static constexpr int kWords = ceil_div(kMaxWidth, 16);
  u32 words[T::kRowTiles][2][kWords];
  u32 edges[T::kRowTiles][2];

  template <int kWidth, bool kChecked>
  __device__ __forceinline__ void load(const ScoreRows<T, unsigned char>& rows, int key0, int limit,
                                       int t) {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32(&out)[kWords] = words[r][half];
        const unsigned char* row = rows.row[r][half] + key0 * rows.key_stride;
        if constexpr (T::kMaskVector == 0) {
          load_values<kWidth / 8, kChecked, 0>(out, row, rows.key_stride, limit, t);
        } else {
          Shifted<kWidth, kChecked>::load(out, edges[r][half], row, limit, t);
          load_values<kWidth / 8, kChecked, kWidth / 16 * 2>(out, row, 1, limit, t);
        }
      }
    }
  }
  // To be called once after each load() by whole warps, before apply(), with the same arguments.
  template <int kWidth, bool kChecked>
  __device__ __forceinline__ void settle(const ScoreRows<T, unsigned char>& rows, int limit,
                                         int t) {
    if constexpr (T::kMaskVector != 0 && kWidth >= 16) {
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Shifted<kWidth, kChecked>::settle(words[r][half], edges[r][half], rows.row[r][half],
                                            limit, t);
        }
      }
    }
  }
  template <int kWidth>
  __device__ __forceinline__ void apply(float (&s)[T::kRowTiles][kMaxWidth / 8][4]) const {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 byte = words[r][i / 2][j / 2] & 0xffu << 8 * (2 * (j % 2) + i % 2);
          if (byte == 0) s[r][j][i] = minus_infinity();
        }
      }
    }
  }

 private:
  template <int kWidth, bool kChecked>
  using Shifted = ShiftedMask<kWidth / 16, kChecked, kChecked ? kLeastKeys<T> : kWidth / 16 * 16>;

  // Tiles from kFrom on, an even number, value by value.
  template <int kTiles, bool kChecked, int kFrom>
  __device__ __forceinline__ static void load_values(u32 (&out)[kWords], const unsigned char* row,
                                                     i64 step, int limit, int t) {
#pragma unroll
    for (int j = kFrom; j < kTiles; ++j) {
      const int key = key_of<T, kTiles>(j, t, 0);
      u32 two = 0;
      if (!kChecked || key < limit) two = __ldg(row + key * step);
      if (!kChecked || key + 1 < limit) two |= u32(__ldg(row + (key + 1) * step)) << 8;
      out[j / 2] = j % 2 == 0 ? two : out[j / 2] | two << 16;
    }
  }
};

// Rules out what lies beyond the end of the keys or, on the diagonal, after the row itself.
template <class T, int kWidth, bool kTail, bool kDiagonal, int kMaxTiles>
__device__ __forceinline__ void mask_scores(float (&s)[T::kRowTiles][kMaxTiles][4], int key0,
                                            int limit, const RowPlace& place) {
  constexpr int kTiles = kWidth / 8;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    // With a constant token count only the tiles that reach beyond it are looked at.
    const bool reaches_end =
        kTail && (T::kKeys == 0 || tile_end<T, kTiles>(j) > T::Keys::kTailKeys);
    if (!kDiagonal && !reaches_end) continue;
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = key_of<T, kTiles>(j, place.t, i % 2);
        const int row = place.row0 + 16 * r + 8 * (i / 2) + place.g;
        const bool seen = (!reaches_end || key < limit) && (!kDiagonal || key0 + key <= row);
        if (!seen) s[r][j][i] = minus_infinity();
      }
    }
  }
}

}  // namespace vitune
