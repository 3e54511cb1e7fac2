// templates/reference/attention_reference.cuh -- The judge of every candidate, and its yardstick.
//
// One tiled kernel for two scalar types. With double it is the judge: scores, exponentials and sums
// in fp64 from the exact 16-bit inputs, in two passes over the keys (maximum and sum, then the
// weighted values). With float it is the yardstick: what a plain correct 16-bit kernel does, that
// is fp32 scores and sums, weights rounded to 16 bits before they meet V, output rounded to 16
// bits.
//
// A CTA of 16 x 16 threads owns 64 query rows of one head: thread (r, c) owns rows r + 16 i, of
// each tile of 32 keys the keys c + 16 j, and of the output the columns c + 16 j.
#pragma once

#include "attention/params.cuh"
#include "reference/attention_dropout.cuh"
#include "reference/numbers.cuh"

namespace vitune {

inline constexpr int kRefThreads = 256;
inline constexpr int kRefRows = 64;
inline constexpr int kRefKeys = 32;
inline constexpr int kRefDepth = 16;     // columns of Q and K in shared memory at a time
inline constexpr int kRefValueKeys = 8;  // rows of V in shared memory at a time
inline constexpr int kRefMaxHead = 128;
inline constexpr int kRefLanes = 16;
inline constexpr int kRowsEach = kRefRows / kRefLanes;
inline constexpr int kKeysEach = kRefKeys / kRefLanes;
inline constexpr int kColumnsEach = kRefMaxHead / kRefLanes;

__device__ inline double ref_exp(double x) { return exp(x); }
__device__ inline float ref_exp(float x) { return expf(x); }
__device__ inline double ref_log(double x) { return log(x); }
__device__ inline float ref_log(float x) { return logf(x); }

// The weight of a key as it meets V.
__device__ inline double ref_weight(double p, int) { return p; }
__device__ inline float ref_weight(float p, int element) {
  return value16(bits16(p, element), element);
}

template <class Scalar>
struct RefShared {
  Scalar q[kRefRows][kRefDepth + 1];
  Scalar k[kRefKeys][kRefDepth + 1];
  Scalar p[kRefRows][kRefKeys + 1];
  Scalar v[kRefValueKeys][kRefMaxHead];
};

// Where one CTA's rows are.
struct RefPlace {
  long long batch, head;
  long long row0;
  const RefU16 *q, *k, *v;  // of this head
};

__device__ inline RefPlace ref_place(const ReferenceParams& p, long long item) {
  const long long tiles = (p.call.queries + kRefRows - 1) / kRefRows;
  RefPlace place;
  place.row0 = item % tiles * kRefRows;
  place.head = item / tiles % p.call.heads;
  place.batch = item / tiles / p.call.heads;
  const long long kv_head = place.head / p.call.heads_per_kv;
  place.q = static_cast<const RefU16*>(p.call.q) + place.batch * p.call.q_view.batch +
            place.head * p.call.q_view.head;
  place.k = static_cast<const RefU16*>(p.call.k) + place.batch * p.call.k_view.batch +
            kv_head * p.call.k_view.head;
  place.v = static_cast<const RefU16*>(p.call.v) + place.batch * p.call.v_view.batch +
            kv_head * p.call.v_view.head;
  return place;
}

// tile[r][x] = source[first + r][column + x] for kRows rows, 0 beyond `rows` or the head size.
template <class Scalar, int kRows>
__device__ inline void ref_load(Scalar (*tile)[kRefDepth + 1], const RefU16* source,
                                long long stride, long long first, long long rows, int column,
                                const ReferenceParams& p) {
  for (int i = threadIdx.x; i < kRows * kRefDepth; i += kRefThreads) {
    const int r = i / kRefDepth, x = i % kRefDepth;
    const bool inside = first + r < rows && column + x < p.head_size;
    const RefU16 bits = inside ? source[(first + r) * stride + column + x] : RefU16(0);
    tile[r][x] = Scalar(value16(bits, p.element));
  }
}

// True if a query row may attend to a key, both inside the problem.
__device__ inline bool ref_visible(const ReferenceParams& p, const RefPlace& place, long long row,
                                   long long key) {
  if (row >= p.call.queries || key >= p.call.keys) return false;
  if (p.causal && key > row) return false;
  if (p.call.mask == nullptr) return true;
  const AttentionScoreView& view = p.call.mask_view;
  return static_cast<const unsigned char*>(
             p.call.mask)[place.batch % view.batches * view.batch + place.head * view.head +
                          row * view.row + key * view.key] != 0;
}

__device__ inline float ref_bias(const ReferenceParams& p, const RefPlace& place, long long row,
                                 long long key) {
  const AttentionScoreView& view = p.call.bias_view;
  return element_value(p.call.bias,
                       place.batch % view.batches * view.batch + place.head * view.head +
                           row * view.row + key * view.key,
                       p.bias);
}

// Rows of one head's tensor, from row `first` on, of `count` in all.
struct RefRows {
  const RefU16* source;
  long long stride, first, count;
};

// The products of 64 rows of `a` and 32 of `b`.
template <class Scalar>
__device__ inline void ref_products(const ReferenceParams& p, const RefRows& a, const RefRows& b,
                                    RefShared<Scalar>& shared, Scalar (&s)[kRowsEach][kKeysEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  for (int i = 0; i < kRowsEach; ++i) {
    for (int j = 0; j < kKeysEach; ++j) s[i][j] = 0;
  }
  for (int column = 0; column < p.head_size; column += kRefDepth) {
    __syncthreads();  // the tiles are still being read
    ref_load<Scalar, kRefRows>(shared.q, a.source, a.stride, a.first, a.count, column, p);
    ref_load<Scalar, kRefKeys>(shared.k, b.source, b.stride, b.first, b.count, column, p);
    __syncthreads();
#pragma unroll
    for (int x = 0; x < kRefDepth; ++x) {
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) {
#pragma unroll
        for (int j = 0; j < kKeysEach; ++j) {
          s[i][j] += shared.q[r + kRefLanes * i][x] * shared.k[c + kRefLanes * j][x];
        }
      }
    }
  }
}

// The scores of 64 rows and the 32 keys from key0 on; -inf where a row may not attend.
template <class Scalar>
__device__ inline void ref_scores(const ReferenceParams& p, const RefPlace& place, long long key0,
                                  RefShared<Scalar>& shared, Scalar (&s)[kRowsEach][kKeysEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  ref_products(p, {place.q, p.call.q_view.row, place.row0, p.call.queries},
               {place.k, p.call.k_view.row, key0, p.call.keys}, shared, s);
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
#pragma unroll
    for (int j = 0; j < kKeysEach; ++j) {
      const long long row = place.row0 + r + kRefLanes * i, key = key0 + c + kRefLanes * j;
      const bool visible = ref_visible(p, place, row, key);
      const Scalar bias =
          visible && p.call.bias != nullptr ? Scalar(ref_bias(p, place, row, key)) : Scalar(0);
      s[i][j] = visible ? s[i][j] * Scalar(p.scale) + bias : Scalar(reference_minus_infinity());
    }
  }
}

// Maximum or sum over the 16 threads that share a row.
template <class Scalar>
__device__ inline Scalar ref_row_max(Scalar x) {
  for (int mask = kRefLanes / 2; mask > 0; mask /= 2) {
    const Scalar other = __shfl_xor_sync(0xffffffffu, x, mask);
    x = other > x ? other : x;
  }
  return x;
}
template <class Scalar>
__device__ inline Scalar ref_row_sum(Scalar x) {
  for (int mask = kRefLanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// Takes the scores of one tile into each row's maximum m and sum l of exp(s - m).
template <class Scalar>
__device__ inline void ref_update(const Scalar (&s)[kRowsEach][kKeysEach], Scalar (&m)[kRowsEach],
                                  Scalar (&l)[kRowsEach]) {
  const Scalar none = Scalar(reference_minus_infinity());
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
    Scalar top = m[i];
#pragma unroll
    for (int j = 0; j < kKeysEach; ++j) top = s[i][j] > top ? s[i][j] : top;
    top = ref_row_max(top);
    Scalar sum = 0;
    if (top != none) {
#pragma unroll
      for (int j = 0; j < kKeysEach; ++j) sum += ref_exp(s[i][j] - top);
    }
    sum = ref_row_sum(sum);
    if (top != none) l[i] = l[i] * ref_exp(m[i] - top) + sum;
    m[i] = top;
  }
}

// acc += weights of one tile times its rows of V, or of another tensor.
template <class Scalar>
__device__ inline void ref_accumulate(const ReferenceParams& p, const RefRows& values,
                                      RefShared<Scalar>& shared,
                                      Scalar (&acc)[kRowsEach][kColumnsEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  for (int first = 0; first < kRefKeys; first += kRefValueKeys) {
    __syncthreads();  // the weights are written, or the rows of V are still being read
    for (int i = threadIdx.x; i < kRefValueKeys * kRefMaxHead; i += kRefThreads) {
      const int y = i / kRefMaxHead, x = i % kRefMaxHead;
      const long long key = values.first + first + y;
      const bool inside = key < values.count && x < p.head_size;
      const RefU16 bits = inside ? values.source[key * values.stride + x] : RefU16(0);
      shared.v[y][x] = Scalar(value16(bits, p.element));
    }
    __syncthreads();
#pragma unroll
    for (int y = 0; y < kRefValueKeys; ++y) {
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) {
        const Scalar weight = shared.p[r + kRefLanes * i][first + y];
#pragma unroll
        for (int j = 0; j < kColumnsEach; ++j) acc[i][j] += weight * shared.v[y][c + kRefLanes * j];
      }
    }
  }
}

__device__ inline long long ref_dense_row(const ReferenceParams& p, const RefPlace& place,
                                          long long row) {
  return (place.batch * p.call.heads + place.head) * p.call.queries + row;
}

// The judge's results are fp32: their rounding, 6e-8 of the value, is far below 16 bits.
__device__ inline void ref_store(const ReferenceParams& p, const RefPlace& place, long long row,
                                 int x, double value) {
  p.out[ref_dense_row(p, place, row) * p.head_size + x] = float(value);
}
__device__ inline void ref_store(const ReferenceParams& p, const RefPlace& place, long long row,
                                 int x, float value) {
  static_cast<RefU16*>(p.call.o)[place.batch * p.call.o_view.batch +
                                 place.head * p.call.o_view.head + row * p.call.o_view.row + x] =
      bits16(value, p.element);
}
__device__ inline float* ref_lse(const ReferenceParams& p, double) { return p.lse; }
__device__ inline float* ref_lse(const ReferenceParams& p, float) { return p.call.lse; }

template <class Scalar>
__device__ inline void ref_finish(const ReferenceParams& p, const RefPlace& place,
                                  const Scalar (&m)[kRowsEach], const Scalar (&l)[kRowsEach],
                                  const Scalar (&acc)[kRowsEach][kColumnsEach]) {
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
#pragma unroll
  for (int i = 0; i < kRowsEach; ++i) {
    const long long row = place.row0 + r + kRefLanes * i;
    if (row >= p.call.queries) continue;
    const bool empty = l[i] == Scalar(0);
#pragma unroll
    for (int j = 0; j < kColumnsEach; ++j) {
      const int x = c + kRefLanes * j;
      const Scalar sum = acc[i][j] * ref_kept_scale<Scalar>(p);
      if (x < p.head_size) ref_store(p, place, row, x, empty ? Scalar(0) : sum / l[i]);
    }
    float* lse = ref_lse(p, Scalar(0));
    if (c == 0 && lse != nullptr) {
      lse[ref_dense_row(p, place, row)] =
          empty ? reference_minus_infinity() : float(m[i] + ref_log(l[i]));
    }
  }
}

// One CTA's rows, from scores to output.
template <class Scalar>
__device__ inline void ref_rows(const ReferenceParams& p, const RefPlace& place,
                                RefShared<Scalar>& shared) {
  const Scalar none = Scalar(reference_minus_infinity());
  Scalar m[kRowsEach], l[kRowsEach], acc[kRowsEach][kColumnsEach], s[kRowsEach][kKeysEach];
  for (int i = 0; i < kRowsEach; ++i) {
    m[i] = none;
    l[i] = 0;
    for (int j = 0; j < kColumnsEach; ++j) acc[i][j] = 0;
  }
  // No row of this CTA sees a key past its last row.
  const long long last_row = place.row0 + kRefRows;
  const long long end = p.causal && last_row < p.call.keys ? last_row : p.call.keys;
  for (long long key0 = 0; key0 < end; key0 += kRefKeys) {
    ref_scores(p, place, key0, shared, s);
    ref_update(s, m, l);
  }
  const int r = threadIdx.x / kRefLanes, c = threadIdx.x % kRefLanes;
  for (long long key0 = 0; key0 < end; key0 += kRefKeys) {
    ref_scores(p, place, key0, shared, s);
    for (int i = 0; i < kRowsEach; ++i) {
      for (int j = 0; j < kKeysEach; ++j) {
        const bool kept = ref_is_kept(p, place.batch * p.call.heads + place.head,
                                      place.row0 + r + kRefLanes * i, key0 + c + kRefLanes * j);
        const Scalar weight = m[i] == none || !kept ? Scalar(0) : ref_exp(s[i][j] - m[i]);
        shared.p[r + kRefLanes * i][c + kRefLanes * j] = ref_weight(weight, p.element);
      }
    }
    ref_accumulate(p, {place.v, p.call.v_view.row, key0, p.call.keys}, shared, acc);
  }
  ref_finish(p, place, m, l, acc);
}

template <class Scalar>
__device__ inline void attention_reference(const ReferenceParams& p) {
  __shared__ RefShared<Scalar> shared;
  const long long tiles = (p.call.queries + kRefRows - 1) / kRefRows;
  const long long items = tiles * p.call.heads * p.call.batch;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    ref_rows(p, ref_place(p, item), shared);
  }
}

}  // namespace vitune
