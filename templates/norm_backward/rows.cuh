// templates/norm_backward/rows.cuh -- Gradients of LayerNorm and RMSNorm, a row in registers.
//
// With x^ = (x - mean) rstd and g = dy weight the gradient of x is
//   dx = residual + rstd (g - mean(g) - x^ mean(g x^)),
// without mean(g) where no mean was taken away. kRowThreads threads hold a row: dy, x and the
// residual's gradient are read once, the sums over the row are taken, all but the mean at once, and
// dx is written, once more with the row's factor where that is asked for. Where mean and rstd are
// not given they are computed as the norm does: two passes over registers. CTAs go on to further
// rows and keep the sums of dy x^ and dy over theirs; finish.cuh adds what each CTA leaves. All
// arithmetic is fp32. With `ahead` a row is asked for before the last one is written.
#pragma once

#include "norm/rows.cuh"
#include "norm_backward/column_sums.cuh"
#include "norm_backward/config_rows.cuh"
#include "norm_backward/row_sums.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// The weight of this thread's columns.
template <class C>
struct NormBackwardWeight {
  using T = NormBackwardTraits<C>;
  typename T::Parameter::Raw raw[T::kPieces];

  __device__ __forceinline__ void load(const NormBackwardParams& p) {
    if (!C::kWeight) return;
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
      if (!T::has(i)) continue;
      raw[i] =
          load_constant_piece<T::Parameter::kBytes>(T::Parameter::address(p.weight, T::column(i)));
    }
  }
  // dy times the weight, of a piece.
  __device__ __forceinline__ void scale(int piece, const float (&dy)[T::kVector],
                                        float (&scaled)[T::kVector]) const {
    float weight[T::kVector];
    if (C::kWeight) T::Parameter::unpack(raw[piece], weight);
#pragma unroll
    for (int j = 0; j < T::kVector; ++j) scaled[j] = C::kWeight ? dy[j] * weight[j] : dy[j];
  }
};

// One number for a row, in fp32.
__device__ __forceinline__ float norm_backward_number(const float* data, i64 at) {
  return __uint_as_float(load_constant_piece<4>(data + at).words[0]);
}

// A row as it was read. Behind the last row nothing is, and nothing is made of it.
template <class C>
struct NormBackwardInput {
  using T = NormBackwardTraits<C>;
  typename T::Gradient::Raw dy[T::kPieces];
  typename T::Stream::Raw x[T::kPieces], residual[T::kPieces];
  float mean, rstd, factor;

  __device__ __forceinline__ void load(const NormBackwardParams& p, i64 row) {
    mean = rstd = factor = 0;
    if (row >= p.rows) return;
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
      if (T::has(i)) dy[i] = at<typename T::Gradient>(p.dy, T::start(row, p.dy_row), i);
    }
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
      if (T::has(i)) x[i] = at<typename T::Stream>(p.x, T::start(row, p.x_row), i);
    }
    if constexpr (C::kResidual) {
#pragma unroll
      for (int i = 0; i < T::kPieces; ++i) {
        if (!T::has(i)) continue;
        residual[i] = at<typename T::Stream>(p.residual, T::start(row, p.residual_row), i);
      }
    }
    if (C::kStatistics) {
      if (!C::kRms) mean = norm_backward_number(p.mean, row);
      rstd = norm_backward_number(p.rstd, row);
    }
    if (C::kFactor) factor = norm_backward_number(p.factor, u32(row) / u32(p.factor_rows));
  }
  template <class V>
  static __device__ __forceinline__ typename V::Raw at(const void* data, i64 start, int piece) {
    return load_piece<V::kBytes, T::kInputs>(V::address(data, start + T::column(piece)));
  }

  // dy and x in fp32; what a thread has no columns for is 0.
  __device__ __forceinline__ void values(typename T::Values& gradients,
                                         typename T::Values& distances) const {
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) gradients[i][j] = distances[i][j] = 0;
      if (!T::has(i)) continue;
      T::Gradient::unpack(dy[i], gradients[i]);
      T::Stream::unpack(x[i], distances[i]);
    }
  }
};

template <class C>
using NormBackwardRowSums = RowSums<NormBackwardTraits<C>::kRowThreads,
                                    NormBackwardTraits<C>::kRows, NormBackwardTraits<C>::kRowSums>;

// The values that dx is computed from, beside the row itself.
struct NormBackwardMoments {
  float rstd;
  float gradient, product;  // the means of g and of g x^
};

// Takes the mean away from x where there is one, and gives the row's moments.
template <class C>
__device__ __forceinline__ NormBackwardMoments norm_backward_moments(
    const NormBackwardParams& p, const NormBackwardInput<C>& input,
    const NormBackwardWeight<C>& weight, const typename NormBackwardTraits<C>::Values& gradients,
    typename NormBackwardTraits<C>::Values& distances, NormBackwardRowSums<C>& row_sums) {
  using T = NormBackwardTraits<C>;
  float mean[1] = {input.mean};
  if constexpr (!C::kRms && !C::kStatistics) {
    mean[0] = 0;
#pragma unroll
    for (int i = 0; i < T::kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) mean[0] += distances[i][j];
    }
    row_sums.add(mean);
    mean[0] = mean_of<T::kColumns>(mean[0]);
  }
  float sums[T::kRowSums] = {};
#pragma unroll
  for (int i = 0; i < T::kPieces; ++i) {
    if (!T::has(i)) continue;
    float g[T::kVector];
    weight.scale(i, gradients[i], g);
#pragma unroll
    for (int j = 0; j < T::kVector; ++j) {
      if constexpr (!C::kRms) {
        distances[i][j] -= mean[0];
        sums[T::kGradients] += g[j];
      }
      sums[T::kProducts] += g[j] * distances[i][j];
      if constexpr (!C::kStatistics) sums[T::kSquares] += distances[i][j] * distances[i][j];
    }
  }
  row_sums.add(sums);
  constexpr float kShare = 1.f / T::kColumns;
  NormBackwardMoments moments = {input.rstd, 0, 0};
  if constexpr (!C::kStatistics) moments.rstd = rsqrtf(sums[T::kSquares] * kShare + p.eps);
  if constexpr (!C::kRms) moments.gradient = sums[T::kGradients] * kShare;
  moments.product = sums[T::kProducts] * kShare * moments.rstd;
  return moments;
}

// Writes dx of a row, and adds the row to the sums of columns.
template <class C>
__device__ __forceinline__ void norm_backward_store(
    const NormBackwardParams& p, i64 row, const NormBackwardMoments& moments,
    const typename NormBackwardTraits<C>::Values& gradients,
    const typename NormBackwardTraits<C>::Values& distances,
    const typename NormBackwardTraits<C>::Stream::Raw (&residual)[NormBackwardTraits<C>::kPieces],
    float factor, const NormBackwardWeight<C>& weight, NormBackwardColumnSums<C>& columns) {
  using T = NormBackwardTraits<C>;
  if (row >= p.rows) return;
#pragma unroll
  for (int i = 0; i < T::kPieces; ++i) {
    if (!T::has(i)) continue;
    float dx[T::kVector], added[T::kVector];
    weight.scale(i, gradients[i], dx);
#pragma unroll
    for (int j = 0; j < T::kVector; ++j) {
      const float normed = distances[i][j] * moments.rstd;
      columns.add(i, j, gradients[i][j], normed);
      dx[j] = (dx[j] - moments.gradient - normed * moments.product) * moments.rstd;
    }
    if constexpr (C::kResidual) {
      T::Stream::unpack(residual[i], added);
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) dx[j] += added[j];
    }
    store_piece(T::Stream::address(p.dx, T::start(row, p.dx_row) + T::column(i)),
                T::Stream::pack(dx));
    if constexpr (C::kSecond >= 0) {
      using Second = Vector<C::kSecond, T::kVector>;
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) dx[j] *= C::kFactor ? factor : 1.f;
      store_piece(Second::address(p.second, T::start(row, p.second_row) + T::column(i)),
                  Second::pack(dx));
    }
  }
}

template <class C>
__device__ void norm_backward_rows(const NormBackwardParams& p) {
  using T = NormBackwardTraits<C>;
  constexpr int kWarpRows = max_of(kWarpSize / T::kRowThreads, 1);
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  NormBackwardRowSums<C> row_sums(shared + T::kColumnBytes);
  NormBackwardColumnSums<C> columns;
  const int group = int(threadIdx.x) / T::kRowThreads;
  const i64 step = i64(gridDim.x) * T::kRows;
  i64 row = i64(blockIdx.x) * T::kRows + group;
  NormBackwardInput<C> input;
  input.load(p, row);
  NormBackwardWeight<C> weight;
  weight.load(p);
  // All rows of a warp, which meet in its shuffles.
  for (i64 first = row - group % kWarpRows; first < p.rows; first += step, row += step) {
    typename T::Values gradients, distances;
    input.values(gradients, distances);
    const NormBackwardInput<C> last = input;
    if (T::kAhead) input.load(p, row + step);
    const NormBackwardMoments moments =
        norm_backward_moments<C>(p, last, weight, gradients, distances, row_sums);
    norm_backward_store<C>(p, row, moments, gradients, distances, last.residual, last.factor,
                           weight, columns);
    if (!T::kAhead) input.load(p, row + step);
  }
  if constexpr (T::kColumnSums > 0) columns.write(p.partials, shared);
}

}  // namespace vitune
