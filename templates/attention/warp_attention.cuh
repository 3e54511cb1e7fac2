// templates/attention/warp_attention.cuh -- One warp's rows against one step of keys: the
// algorithm.
//
// attend() is a step of FlashAttention (Dao et al. 2022, 2023) on tensor cores: scores, bias and
// mask, softmax, weighted sum of values. Scores and weights never leave registers: an mma
// accumulator of Q K^T is laid out as the A operand of P V once it is rounded to 16 bits.
#pragma once

#include "attention/attention_rows.cuh"
#include "attention/config.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"

namespace vitune {

// The queries of one warp as mma A operands, kept in registers or read from its rows for each step.
template <class T>
struct Queries {
  u32 fragments[T::kQueryInRegisters ? T::kRowTiles : 1]
               [T::kQueryInRegisters ? T::kHeadSteps + 1 : 1][4];
  u32 address;  // of this lane's row and column for ldmatrix

  __device__ __forceinline__ void init(u32 rows, int lane) {
    address = rows + (lane & 15) * T::Rows::kPitch + (lane >> 4) * 16;
    if constexpr (T::kQueryInRegisters) {
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
        for (int step = 0; step < T::kHeadSteps + T::kHalfStep; ++step)
          read(fragments[r][step], r, step);
      }
    }
  }
  __device__ __forceinline__ void get(u32 (&a)[4], int r, int step) const {
    if constexpr (T::kQueryInRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = fragments[r][step][i];
    } else {
      read(a, r, step);
    }
  }

 private:
  // The last half step has eight columns: two matrices.
  __device__ __forceinline__ void read(u32 (&a)[4], int r, int step) const {
    const u32 from = address + 16 * r * T::Rows::kPitch + 32 * step;
    if (T::kHalfStep && step == T::kHeadSteps) {
      ldmatrix_x2(a[0], a[1], from);
    } else {
      ldmatrix_x4(a, from);
    }
  }
};

// Addresses of this lane for ldmatrix within a step's keys and values; see shared.cuh and
// scores.cuh.
template <class T>
struct LaneOffsets {
  u32 key_pair;      // two n8 tiles of keys, one k16 step
  u32 key_half;      // two n8 tiles of keys, eight columns
  u32 key_single;    // one n8 tile of keys, one k16 step
  u32 value_pair;    // sixteen keys, two n8 tiles of columns
  u32 value_single;  // eight keys, two n8 tiles of columns

  __device__ __forceinline__ explicit LaneOffsets(int lane) {
    constexpr int kPitch = T::Rows::kPitch;
    const int i = lane & 7, second = (lane >> 3) & 1, third = lane >> 4;
    key_pair = pair_key<T::kPermuted>(third, i) * kPitch + second * 16;
    key_half = pair_key<T::kPermuted>(second, i) * kPitch;
    key_single = i * kPitch + second * 16;
    value_pair = pair_key<T::kPermuted>(second, i) * kPitch + third * 16;
    value_single = i * kPitch + second * 16;
  }
};

template <class T>
struct WarpAttention : AttentionRows<T> {
  using E = Element<T::kElement>;
  using typename AttentionRows<T>::Scores;
  using AttentionRows<T>::o;
  using AttentionRows<T>::softmax;

  const LaneOffsets<T> lanes;
  Queries<T> queries;

  __device__ __forceinline__ explicit WarpAttention(int lane) : lanes(lane) {}

  // Starts on new rows whose queries are in shared memory at `query_rows`.
  __device__ __forceinline__ void begin(const AttentionParams& p, const RowPlace& at,
                                        u32 query_rows) {
    this->begin_rows(p, at);
    queries.init(query_rows, 4 * at.g + at.t);
    this->clear_output();
  }

  // One step over kWidth keys from key0 on, of which `limit` exist. `between` is called after the
  // last read of the keys and before the first read of the values.
  template <int kWidth, bool kTail, bool kDiagonal, bool kFirst, class Between>
  __device__ __forceinline__ void attend(u32 keys, u32 values, int key0, int limit,
                                         Between&& between) {
    Scores s;  // Q K^T
    this->template fetch_operands<kWidth, kTail>(key0, limit);
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) clear_tile(s, j);
#pragma unroll
    for (int step = 0; step < T::kHeadSteps + T::kHalfStep; ++step) {
      u32 a[T::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) queries.get(a[r], r, step);
#pragma unroll
      for (int j = 0; j < kWidth / 8; j += 2) mma_qk<kWidth / 8>(s, a, keys, j, step);
    }
    between();
    this->template weigh_step<kWidth, kTail, kDiagonal, kFirst>(s, key0, limit);
    if (T::kBias != 0 && softmax.extreme) {
      mma_pv<kWidth, true>(s, values);
    } else {
      mma_pv<kWidth, false>(s, values);
    }
  }

 private:
  // Q K^T of head columns [16 step, 16 step + 16) for the n8 tiles j and j + 1 of kTiles.
  template <int kTiles>
  __device__ __forceinline__ void mma_qk(Scores& s, const u32 (&a)[T::kRowTiles][4], u32 keys,
                                         int j, int step) {
    const u32 from = keys + 8 * j * T::Rows::kPitch + 32 * step;
    const bool pair = j + 1 < kTiles;
    if (T::kHalfStep && step == T::kHeadSteps) {
      u32 b0, b1 = 0;
      if (pair) {
        ldmatrix_x2(b0, b1, from + lanes.key_half);
      } else {
        ldmatrix_x1(b0, from + lanes.key_single);
      }
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) {
        E::mma_half(s[r][j], a[r][0], a[r][1], b0);
        if (pair) E::mma_half(s[r][j + 1], a[r][0], a[r][1], b1);
      }
      return;
    }
    u32 b[4];
    if (pair) {
      ldmatrix_x4(b, from + lanes.key_pair);
    } else {
      ldmatrix_x2(b[0], b[1], from + lanes.key_single);
    }
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
      E::mma(s[r][j], a[r], b[0], b[1]);
      if (pair) E::mma(s[r][j + 1], a[r], b[2], b[3]);
    }
  }

  __device__ __forceinline__ void clear_tile(Scores& s, int j) {
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[r][j][i] = 0.f;
    }
  }

  // The weights of tile j of row tile r as half of an A operand.
  template <bool kExtreme>
  __device__ __forceinline__ void weigh_tile(u32& upper, u32& lower, const Scores& s, int r,
                                             int j) {
    upper = softmax.template weigh<kExtreme, E>(s[r][j][0], s[r][j][1], r, 0);
    lower = softmax.template weigh<kExtreme, E>(s[r][j][2], s[r][j][3], r, 1);
  }

  // o += P V, with the weights computed sixteen keys at a time so that they take over the registers
  // of the scores and their exponentials overlap with the matrix products before them.
  template <int kWidth, bool kExtreme>
  __device__ __forceinline__ void mma_pv(const Scores& s, u32 values) {
    constexpr int kTiles = kWidth / 8;
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      u32 a[T::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < T::kRowTiles; ++r) {
        weigh_tile<kExtreme>(a[r][0], a[r][1], s, r, j);
        if (j + 1 < kTiles) weigh_tile<kExtreme>(a[r][2], a[r][3], s, r, j + 1);
      }
      const u32 from = values + 8 * j * T::Rows::kPitch;
#pragma unroll
      for (int n = 0; n < T::kHeadTiles; n += 2) {
        if (j + 1 < kTiles) {
          mma_pv_sixteen(a, from + lanes.value_pair, n);
        } else {
          mma_pv_eight(a, from + lanes.value_single, n);
        }
      }
    }
  }

  // Sixteen keys for the n8 column tiles n and n + 1.
  __device__ __forceinline__ void mma_pv_sixteen(const u32 (&a)[T::kRowTiles][4], u32 from, int n) {
    u32 b[4];
    if (n + 1 < T::kHeadTiles) {
      ldmatrix_x4_trans(b, from + 16 * n);
    } else {
      ldmatrix_x2_trans(b[0], b[1], from + 16 * n);
    }
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
      E::mma(o[r][n], a[r], b[0], b[1]);
      if (n + 1 < T::kHeadTiles) E::mma(o[r][n + 1], a[r], b[2], b[3]);
    }
  }
  // Eight keys, the last tile of an odd number.
  __device__ __forceinline__ void mma_pv_eight(const u32 (&a)[T::kRowTiles][4], u32 from, int n) {
    u32 b0, b1 = 0;
    if (n + 1 < T::kHeadTiles) {
      ldmatrix_x2_trans(b0, b1, from + 16 * n);
    } else {
      ldmatrix_x1_trans(b0, from + 16 * n);
    }
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
      E::mma_half(o[r][n], a[r][0], a[r][1], b0);
      if (n + 1 < T::kHeadTiles) E::mma_half(o[r][n + 1], a[r][0], a[r][1], b1);
    }
  }
};

}  // namespace vitune
