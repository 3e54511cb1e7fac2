// templates/attention/overflow_fallback.cuh -- A warp's rows once more, with a maximum that is
// always up to date.
//
// Where weights are relative to the maximum of a row's first step (kHoldsReference), a later key
// may be so far above it that fp32 does not hold its weight, or a product with it. That takes
// scores some eighty natural units apart, which no trained model is known to have, so it is noticed
// when the rows are done (AttentionRows::overflowed()). They are computed again here: straight from
// global memory, sixteen keys and a few columns of values at a time, with mma.sync. That is slow,
// and little code: every kernel that holds a reference has to be compiled with it. Any stride and
// alignment.
#pragma once

#include "attention/scores.cuh"
#include "attention/softmax.cuh"
#include "attention/tile_scheduler.cuh"
#include "primitives/element.cuh"

namespace vitune {

// The kernel's Config, as the second computation follows it.
template <class T>
struct ExactTraits : T {
  static constexpr int kRowTiles = 1;
  static constexpr bool kHoldsReference = false;
};

// Sixteen rows.
template <class T>
struct ExactRows {
  using E = Element<T::kElement>;
  using Softmax = OnlineSoftmax<ExactTraits<T>>;
  static constexpr int kTiles = 4;  // of eight columns of values that are worked on at once

  const AttentionParams& p;
  const RowPlace& place;
  const HeadPlace head;

  __device__ __forceinline__ ExactRows(const AttentionParams& params, const RowPlace& rows)
      : p(params), place(rows), head(params, rows.batch * params.heads + rows.head) {}

  __device__ __forceinline__ void run() const {
    const int keys = T::kCausal ? min(p.keys, place.row0 + 16) : p.keys;
#pragma unroll 1
    for (int column0 = 0; column0 < T::kHeadDim; column0 += 8 * kTiles) {
      Softmax softmax;
      softmax.init(p.scale);
      float o[kTiles][4] = {};
#pragma unroll 1
      for (int key0 = 0; key0 < keys; key0 += 16) step(softmax, o, key0, column0);
      store(softmax, o, column0);
    }
  }

 private:
  // Two neighbours of a row; zeros beyond the head or the last key.
  __device__ __forceinline__ u32 two(const u16* row, int column, bool there) const {
    if (!there || column >= T::kHeadDim) return 0;
    if constexpr (T::kCopyBytes >= 4) return *reinterpret_cast<const u32*>(row + column);
    return row[column] | u32(row[column + 1]) << 16;
  }
  __device__ __forceinline__ const u16* query(int row) const {
    return head.q + min(row, p.queries - 1) * p.q_view.row;
  }
  __device__ __forceinline__ const u16* key(int index) const {
    return head.k + min(index, p.keys - 1) * p.k_view.row;
  }

  __device__ __forceinline__ void scores(float (&s)[1][2][4], int key0) const {
    const u16* rows[2] = {query(place.row0 + place.g), query(place.row0 + place.g + 8)};
    const int index = key0 + place.g;
    const u16* keys[2] = {key(index), key(index + 8)};
#pragma unroll 1
    for (int column = 2 * place.t; column < T::kHeadDim; column += 16) {
      const u32 a[4] = {two(rows[0], column, true), two(rows[1], column, true),
                        two(rows[0], column + 8, true), two(rows[1], column + 8, true)};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool there = index + 8 * j < p.keys;
        E::mma(s[0][j], a, two(keys[j], column, there), two(keys[j], column + 8, there));
      }
    }
  }
  __device__ __forceinline__ void mask(float (&s)[1][2][4], int key0) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int index = key0 + 8 * (i / 4) + 2 * place.t + i % 2;
      const int row = place.row0 + place.g + 8 * (i % 4 / 2);
      if (index >= p.keys || (T::kCausal && index > row)) s[0][i / 4][i % 4] = minus_infinity();
    }
  }
  // Column `column` of two values that follow each other.
  __device__ __forceinline__ u32 two_values(int index, int column) const {
    if (index >= p.keys || column >= T::kHeadDim) return 0;
    const u16* from = head.v + index * p.v_view.row + column;
    return index + 1 < p.keys ? from[0] | u32(from[p.v_view.row]) << 16 : from[0];
  }

  __device__ __forceinline__ void step(Softmax& softmax, float (&o)[kTiles][4], int key0,
                                       int column0) const {
    float s[1][2][4] = {};
    scores(s, key0);
    mask(s, key0);
    float rescale[1][2];
    softmax.template update<2, false>(s, rescale);
    u32 weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &s[0][i / 2][i % 2 * 2];
      weights[i] = softmax.template weigh<true, E>(pair[0], pair[1], 0, i % 2);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] *= rescale[0][i / 2];
      const int column = column0 + 8 * n + place.g;
      E::mma(o[n], weights, two_values(key0 + 2 * place.t, column),
             two_values(key0 + 8 + 2 * place.t, column));
    }
  }
  __device__ __forceinline__ void store(Softmax& softmax, const float (&o)[kTiles][4],
                                        int column0) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float lse;
      const float inverse = softmax.finalize(0, half, lse);
      const int row = place.row0 + place.g + 8 * half;
      u16* to = static_cast<u16*>(p.o) + place.batch * p.o_view.batch + place.head * p.o_view.head +
                row * p.o_view.row;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int column = column0 + 8 * n + 2 * place.t;
        if (row >= p.queries || column >= T::kHeadDim) continue;
        const u32 pair = E::pack(o[n][2 * half] * inverse, o[n][2 * half + 1] * inverse);
        to[column] = u16(pair);
        to[column + 1] = u16(pair >> 16);
      }
    }
  }
};

// The rows of a warp of kRowTiles row tiles.
template <class T>
__device__ __forceinline__ void compute_again(const AttentionParams& p, const RowPlace& place) {
#pragma unroll 1
  for (int r = 0; r < T::kRowTiles; ++r) {
    RowPlace rows = place;
    rows.row0 += 16 * r;
    if (rows.row0 < p.queries) ExactRows<T>(p, rows).run();
  }
}

// The same for all items of a CTA. The warp's rows begin `offset` rows after those of an item, or
// of a block of rows of a resident head; `slot` is that head among those that the CTA works on at
// once. place_of(row, head) says where rows are.
template <class T, class PlaceOf>
__device__ __forceinline__ void compute_items_again(const AttentionParams& p, int slot, int offset,
                                                    PlaceOf&& place_of) {
#pragma unroll 1
  for (int item = blockIdx.x; item < p.items; item += T::kPersistent ? gridDim.x : p.items) {
    if constexpr (T::kResident) {
      const ResidentItem<T> at(item, slot);
      if (at.head_index >= p.batch * p.heads) continue;
      const HeadPlace head(p, at.head_index);
#pragma unroll 1
      for (int row = at.split * T::kBlockM + offset; row < p.queries;
           row += T::kRowSplit * T::kBlockM) {
        compute_again<T>(p, place_of(row, head));
      }
    } else {
      const StreamingItem<T> at(p, item);
      compute_again<T>(p, place_of(at.row0 + offset, HeadPlace(p, at.head_index)));
    }
  }
}

}  // namespace vitune
