// templates/norm/rows.cuh -- LayerNorm and RMSNorm over the last dimension, a row in registers.
//
// kRowThreads threads hold a row: it is read once, its mean is taken, then the mean of the squared
// distances from it (two passes over registers: no cancellation, however far the row is from 0),
// and the result is written. All arithmetic is fp32. kRows rows are at work in a CTA at once.
// Weight and bias are asked for behind the row, not when they are used: nobody waits for them
// between the row's sums and its results. With kPersistent a CTA goes on to further rows, for which
// it asks before it has written the last ones. kStreaming: what L2 need not keep, nothing (0), the
// outputs (1), the inputs too (2).
#pragma once

#include "norm/params.cuh"
#include "norm/row_sum.cuh"
#include "primitives/sync.cuh"
#include "primitives/vector.cuh"

namespace vitune {

template <class C>
struct NormRow {
  static constexpr int kVector = C::kVector;
  static constexpr int kStep = kVector * C::kRowThreads;  // columns that a row's threads take
  static constexpr int kPieces = ceil_div(C::kColumns, kStep);
  static constexpr Keep kInputs = C::kStreaming == 2 ? Keep::kNot : Keep::kUsual;
  static constexpr Keep kOutputs = C::kStreaming != 0 ? Keep::kNot : Keep::kUsual;
  using In = Vector<C::kInput, kVector>;
  using Out = Vector<C::kOutput, kVector>;
  using Parameter = Vector<C::kParameters, kVector>;

  // Where a row begins, in elements. Rows side by side are known to be: one product for all
  // tensors.
  static __device__ __forceinline__ i64 start(i64 row, i64 stride) {
    return row * (C::kSideBySide ? i64(C::kColumns) : stride);
  }
  static __device__ __forceinline__ int column(int piece) {
    return (piece * C::kRowThreads + int(threadIdx.x) % C::kRowThreads) * kVector;
  }
  static __device__ __forceinline__ bool has(int piece) {
    return C::kColumns % kStep == 0 || column(piece) < C::kColumns;
  }
};

// Weight and bias of this thread's columns.
template <class C>
struct NormParameters {
  using Row = NormRow<C>;
  using Raw = typename Row::Parameter::Raw;
  Raw weight[Row::kPieces], bias[Row::kPieces];

  __device__ __forceinline__ void load(const NormParams& p) {
#pragma unroll
    for (int i = 0; i < Row::kPieces; ++i) {
      if (!Row::has(i)) continue;
      if (C::kWeight) weight[i] = at(p.weight, i);
      if (C::kBias) bias[i] = at(p.bias, i);
    }
  }
  static __device__ __forceinline__ Raw at(const void* data, int piece) {
    return load_constant_piece<Row::Parameter::kBytes>(
        Row::Parameter::address(data, Row::column(piece)));
  }
};

// A row as it was read.
template <class C>
struct NormInput {
  using Row = NormRow<C>;
  using Raw = typename Row::In::Raw;
  Raw x[Row::kPieces], residual[Row::kPieces];

  __device__ __forceinline__ void load(const NormParams& p, i64 row) {
    if (row >= p.rows) return;
#pragma unroll
    for (int i = 0; i < Row::kPieces; ++i) {
      if (Row::has(i)) x[i] = at(p.x, Row::start(row, p.x_row), i);
    }
    if (!C::kResidual) return;
#pragma unroll
    for (int i = 0; i < Row::kPieces; ++i) {
      if (Row::has(i)) residual[i] = at(p.residual, Row::start(row, p.residual_row), i);
    }
  }
  static __device__ __forceinline__ Raw at(const void* data, i64 start, int piece) {
    return load_piece<Row::In::kBytes, Row::kInputs>(
        Row::In::address(data, start + Row::column(piece)));
  }

  // x, or x + residual; what a thread has no columns for is 0.
  __device__ __forceinline__ void values(float (&v)[Row::kPieces][Row::kVector]) const {
#pragma unroll
    for (int i = 0; i < Row::kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < Row::kVector; ++j) v[i][j] = 0;
      if (!Row::has(i)) continue;
      Row::In::unpack(x[i], v[i]);
      if (!C::kResidual) continue;
      float added[Row::kVector];
      Row::In::unpack(residual[i], added);
#pragma unroll
      for (int j = 0; j < Row::kVector; ++j) v[i][j] += added[j];
    }
  }
};

struct NormStatistics {
  float mean, rstd;
};

// sum / kCount, rounded as a division is: the mean of equal numbers is that number, and all
// distances from it are 0.
template <int kCount>
__device__ __forceinline__ float mean_of(float sum) {
  constexpr float kShare = 1.f / kCount;
  const float near = sum * kShare;
  return __fmaf_rn(__fmaf_rn(-near, float(kCount), sum), kShare, near);
}

// `places`: two of row_sum()'s.
template <class C, int kPieces, int kVector>
__device__ __forceinline__ NormStatistics norm_statistics(const float (&v)[kPieces][kVector],
                                                          float eps, u32 places) {
  constexpr int kPlaceBytes = 4 * ceil_div(C::kRowThreads, kWarpSize);
  NormStatistics s = {0, 0};
  if constexpr (!C::kRms) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum += v[i][j];
    }
    s.mean = mean_of<C::kColumns>(row_sum<C::kRowThreads>(sum, places));
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (!NormRow<C>::has(i)) continue;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float distance = v[i][j] - s.mean;
      squares += distance * distance;
    }
  }
  squares = row_sum<C::kRowThreads>(squares, places + kPlaceBytes);
  s.rstd = rsqrtf(squares * (1.f / C::kColumns) + eps);
  return s;
}

template <class C, int kPieces, int kVector>
__device__ __forceinline__ void norm_store(const NormParams& p, i64 row,
                                           const float (&v)[kPieces][kVector],
                                           const NormStatistics& s,
                                           const NormParameters<C>& parameters) {
  using Row = NormRow<C>;
  if (row >= p.rows) return;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (!Row::has(i)) continue;
    const int column = Row::column(i);
    float y[kVector], factor[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) y[j] = (v[i][j] - s.mean) * s.rstd;
    if (C::kWeight) {
      Row::Parameter::unpack(parameters.weight[i], factor);
#pragma unroll
      for (int j = 0; j < kVector; ++j) y[j] *= factor[j];
    }
    if (C::kBias) {
      Row::Parameter::unpack(parameters.bias[i], factor);
#pragma unroll
      for (int j = 0; j < kVector; ++j) y[j] += factor[j];
    }
    store_piece<Row::kOutputs>(Row::Out::address(p.out, Row::start(row, p.out_row) + column),
                               Row::Out::pack(y));
    if constexpr (C::kSecond >= 0) {
      using Second = Vector<C::kSecond, kVector>;
      store_piece<Row::kOutputs>(Second::address(p.second, Row::start(row, p.second_row) + column),
                                 Second::pack(y));
    }
    if (C::kSum) {
      store_piece<Row::kOutputs>(Row::In::address(p.sum, Row::start(row, p.sum_row) + column),
                                 Row::In::pack(v[i]));
    }
  }
  if (C::kStatistics && threadIdx.x % C::kRowThreads == 0) {
    if (!C::kRms) p.mean[row] = s.mean;
    p.rstd[row] = s.rstd;
  }
}

template <class C>
__device__ void norm_rows(const NormParams& p) {
  using Row = NormRow<C>;
  constexpr int kPlaceBytes = 4 * ceil_div(C::kRowThreads, kWarpSize);
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  const int group = int(threadIdx.x) / C::kRowThreads;
  const u32 first_place = shared_address(shared_memory) + 2 * kPlaceBytes * group;
  u32 places = first_place;
  i64 row = i64(blockIdx.x) * C::kRows + group;
  NormInput<C> input;
  input.load(p, row);
  NormParameters<C> parameters;
  parameters.load(p);
  float v[Row::kPieces][Row::kVector];
  if constexpr (!C::kPersistent) {
    input.values(v);
    norm_store<C>(p, row, v, norm_statistics<C>(v, p.eps, places), parameters);
  } else {
    const i64 step = i64(gridDim.x) * C::kRows;
    // The same number of rounds for all groups of a CTA: they meet at barriers.
    for (i64 first = row - group; first < p.rows; first += step, row += step) {
      input.values(v);
      input.load(p, row + step);
      norm_store<C>(p, row, v, norm_statistics<C>(v, p.eps, places), parameters);
      // One sum is all that RMSNorm takes of a row, between two barriers: the next row's goes to
      // the other place, because slow warps may still read this one's.
      if constexpr (C::kRms) places = 2 * first_place - kPlaceBytes - places;
    }
  }
}

}  // namespace vitune
