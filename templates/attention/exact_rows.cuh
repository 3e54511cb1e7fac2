// templates/attention/exact_rows.cuh -- A warp's rows once more, with a maximum that is always up
// to date.
//
// Where weights are relative to the maximum of a row's first step (kHoldsReference), a later key
// may be so far above it that fp32 does not hold its weight, or a product with it. That takes
// scores some eighty natural units apart, which no trained model is known to have, so it is noticed
// when the rows are done (AttentionRows::outgrown()). They are computed again here: straight from
// global memory, sixteen keys at a time, with mma.sync, some ten times slower. Any stride and
// alignment.
#pragma once

#include "attention/epilogue.cuh"
#include "attention/scores.cuh"
#include "attention/softmax.cuh"
#include "attention/tile_scheduler.cuh"
#include "primitives/element.cuh"

namespace vitune {

// What of a kernel's Config the second computation follows.
template <class T>
struct ExactTraits : T {
  static constexpr int kRowTiles = 1, kWarpRows = 16;
  static constexpr bool kHoldsReference = false;
};

// Sixteen rows.
template <class T>
struct ExactRows {
  using E = Element<T::kElement>;
  static constexpr int kSteps = ceil_div(T::kHeadDim, 16);

  const AttentionParams& p;
  const RowPlace& place;
  const HeadPlace head;
  OnlineSoftmax<ExactTraits<T>> softmax;
  float o[1][T::kHeadTiles][4] = {};

  __device__ __forceinline__ ExactRows(const AttentionParams& params, const RowPlace& rows)
      : p(params), place(rows), head(params, rows.batch * params.heads + rows.head) {}

  // `staging` as for Epilogue::store().
  __device__ __forceinline__ void run(u32 staging) {
    softmax.init(p.scale);
    const int keys = T::kCausal ? min(p.keys, place.row0 + 16) : p.keys;
#pragma unroll 1
    for (int key0 = 0; key0 < keys; key0 += 16) step(key0);
    Epilogue<ExactTraits<T>>::store(p, place, staging, o, softmax);
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

  __device__ __forceinline__ void scores(float (&s)[1][2][4], int key0) const {
    const u16* upper = query(place.row0 + place.g);
    const u16* lower = query(place.row0 + place.g + 8);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int column = 16 * step + 2 * place.t;
      const u32 a[4] = {two(upper, column, true), two(lower, column, true),
                        two(upper, column + 8, true), two(lower, column + 8, true)};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = key0 + 8 * j + place.g;
        const bool there = key < p.keys;
        const u16* row = head.k + (there ? key : 0) * p.k_view.row;
        E::mma(s[0][j], a, two(row, column, there), two(row, column + 8, there));
      }
    }
  }
  __device__ __forceinline__ void mask(float (&s)[1][2][4], int key0) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int key = key0 + 8 * (i / 4) + 2 * place.t + i % 2;
      const int row = place.row0 + place.g + 8 * (i % 4 / 2);
      if (key >= p.keys || (T::kCausal && key > row)) s[0][i / 4][i % 4] = minus_infinity();
    }
  }
  // Column `column` of two values that follow each other.
  __device__ __forceinline__ u32 two_values(int key, int column) const {
    const u16* from = head.v + key * p.v_view.row + column;
    const u32 first = key < p.keys ? from[0] : 0;
    return key + 1 < p.keys ? first | u32(from[p.v_view.row]) << 16 : first;
  }

  __device__ __forceinline__ void step(int key0) {
    float s[1][2][4] = {};
    scores(s, key0);
    mask(s, key0);
    float rescale[1][2];
    softmax.template update<2, false>(s, rescale);
    u32 weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* two = &s[0][i / 2][i % 2 * 2];
      weights[i] = softmax.template weigh<false, E>(two[0], two[1], 0, i % 2);
    }
#pragma unroll
    for (int n = 0; n < T::kHeadTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[0][n][i] *= rescale[0][i / 2];
      E::mma(o[0][n], weights, two_values(key0 + 2 * place.t, 8 * n + place.g),
             two_values(key0 + 8 + 2 * place.t, 8 * n + place.g));
    }
  }
};

// The rows of a warp of kRowTiles row tiles.
template <class T>
__device__ __forceinline__ void compute_again(const AttentionParams& p, const RowPlace& place,
                                              u32 staging) {
#pragma unroll 1
  for (int r = 0; r < T::kRowTiles; ++r) {
    RowPlace rows = place;
    rows.row0 += 16 * r;
    if (rows.row0 < p.queries) ExactRows<T>(p, rows).run(staging);
  }
}

// The same for all items of this CTA where they are walked over as in for_each_item():
// rows_of(item, work) calls work(place) for each of the warp's blocks of rows.
template <class T, class RowsOf>
__device__ __forceinline__ void compute_items_again(const AttentionParams& p, u32 staging,
                                                    RowsOf&& rows_of) {
#pragma unroll 1
  for (int item = blockIdx.x; item < p.items; item += T::kPersistent ? gridDim.x : p.items) {
    rows_of(item, [&](const RowPlace& place) { compute_again<T>(p, place, staging); });
  }
}

}  // namespace vitune
