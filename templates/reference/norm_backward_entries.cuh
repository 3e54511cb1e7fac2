// templates/reference/norm_backward_entries.cuh -- The judge of every norm's gradients, and its
// yardstick.
//
// Two kernels, and each row's mean and rstd between them: dx, where a warp has a row and reads it
// from memory in each pass; then the sums over rows, eight columns for a CTA, each by 32 threads
// that share its rows. With double it is the judge; with float the yardstick: plain fp32, each
// result rounded once.
#pragma once

#include "norm_backward/params.cuh"
#include "reference/norm_backward_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

inline constexpr int kNormBackwardSide = 8, kNormBackwardThreads = 32;

template <class Scalar>
__device__ inline Scalar norm_backward_warp_sum(Scalar value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ inline double norm_backward_dy(const NormBackwardJudgeParams& p, long long row,
                                          int column) {
  return element_value(p.call.dy, row * p.call.dy_row + column, p.gradient);
}
__device__ inline double norm_backward_x(const NormBackwardJudgeParams& p, long long row,
                                         int column) {
  return element_value(p.call.x, row * p.call.x_row + column, p.stream);
}

// One result: the answer in fp32, or what the call's output has.
__device__ inline void norm_backward_write(float* answer, long long dense, void*, long long, int,
                                           double value) {
  answer[dense] = float(value);
}
__device__ inline void norm_backward_write(float*, long long, void* to, long long at, int type,
                                           float value) {
  if (type == kSupportFp32) {
    static_cast<float*>(to)[at] = value;
  } else {
    static_cast<RefU16*>(to)[at] = bits16(value, type);
  }
}

template <class Scalar>
struct NormBackwardStatistics {
  Scalar mean, rstd;
};

// Those that are given, or as the norm computes them.
template <class Scalar>
__device__ inline NormBackwardStatistics<Scalar> norm_backward_statistics(
    const NormBackwardJudgeParams& p, long long row) {
  const int lane = threadIdx.x % 32;
  if (p.call.rstd != nullptr) {
    return {p.rms ? Scalar(0) : Scalar(p.call.mean[row]), Scalar(p.call.rstd[row])};
  }
  Scalar mean = 0, squares = 0;
  if (!p.rms) {
    for (int c = lane; c < p.columns; c += 32) mean += Scalar(norm_backward_x(p, row, c));
    mean = norm_backward_warp_sum(mean) / Scalar(p.columns);
  }
  for (int c = lane; c < p.columns; c += 32) {
    const Scalar distance = Scalar(norm_backward_x(p, row, c)) - mean;
    squares += distance * distance;
  }
  const Scalar variance = norm_backward_warp_sum(squares) / Scalar(p.columns);
  return {mean, Scalar(1) / sqrt(variance + Scalar(p.eps))};
}

template <class Scalar>
__device__ inline Scalar norm_backward_scaled(const NormBackwardJudgeParams& p, long long row,
                                              int column) {
  const Scalar dy = Scalar(norm_backward_dy(p, row, column));
  if (p.call.weight == nullptr) return dy;
  return dy * Scalar(element_value(p.call.weight, column, p.parameters));
}

template <class Scalar>
__device__ inline void norm_backward_row(const NormBackwardJudgeParams& p, long long row) {
  const int lane = threadIdx.x % 32;
  const NormBackwardParams& call = p.call;
  const NormBackwardStatistics<Scalar> s = norm_backward_statistics<Scalar>(p, row);
  Scalar gradient = 0, product = 0;
  for (int c = lane; c < p.columns; c += 32) {
    const Scalar g = norm_backward_scaled<Scalar>(p, row, c);
    gradient += g;
    product += g * ((Scalar(norm_backward_x(p, row, c)) - s.mean) * s.rstd);
  }
  gradient = p.rms ? Scalar(0) : norm_backward_warp_sum(gradient) / Scalar(p.columns);
  product = norm_backward_warp_sum(product) / Scalar(p.columns);
  for (int c = lane; c < p.columns; c += 32) {
    const Scalar normed = (Scalar(norm_backward_x(p, row, c)) - s.mean) * s.rstd;
    const Scalar g = norm_backward_scaled<Scalar>(p, row, c);
    Scalar dx = s.rstd * (g - gradient - normed * product);
    if (call.residual != nullptr) {
      dx += Scalar(element_value(call.residual, row * call.residual_row + c, p.stream));
    }
    const long long dense = row * p.columns + c;
    norm_backward_write(p.dx, dense, call.dx, row * call.dx_row + c, p.stream, dx);
    if (call.second == nullptr) continue;
    if (call.factor != nullptr) dx *= Scalar(call.factor[row / call.factor_rows]);
    norm_backward_write(p.second, dense, call.second, row * call.second_row + c, p.second_type, dx);
  }
  if (lane != 0) return;
  static_cast<NormBackwardStatistics<Scalar>*>(p.statistics)[row] = s;
}

template <class Scalar>
__device__ inline void norm_backward_reference(const NormBackwardJudgeParams& p) {
  const long long warps = (long long)(gridDim.x) * blockDim.x / 32;
  for (long long row = (long long)(global_thread()) / 32; row < p.call.rows; row += warps) {
    norm_backward_row<Scalar>(p, row);
  }
}

template <class Scalar>
__device__ inline void norm_backward_columns(const NormBackwardJudgeParams& p) {
  __shared__ Scalar dweight[kNormBackwardThreads][kNormBackwardSide];
  __shared__ Scalar dbias[kNormBackwardThreads][kNormBackwardSide];
  const int side = threadIdx.x % kNormBackwardSide, first = threadIdx.x / kNormBackwardSide;
  const int column = blockIdx.x * kNormBackwardSide + side;
  const auto* const rows = static_cast<const NormBackwardStatistics<Scalar>*>(p.statistics);
  Scalar products = 0, gradients = 0;
  for (int row = first; column < p.columns && row < p.call.rows; row += kNormBackwardThreads) {
    const Scalar dy = Scalar(norm_backward_dy(p, row, column));
    const Scalar distance = Scalar(norm_backward_x(p, row, column)) - rows[row].mean;
    products += dy * (distance * rows[row].rstd);
    gradients += dy;
  }
  dweight[first][side] = products;
  dbias[first][side] = gradients;
  __syncthreads();
  if (first > 0 || column >= p.columns) return;
  for (int i = 1; i < kNormBackwardThreads; ++i) {
    products += dweight[i][side];
    gradients += dbias[i][side];
  }
  const NormBackwardParams& call = p.call;
  if (call.dweight != nullptr) {
    norm_backward_write(p.dweight, column, call.dweight, column, p.parameters, products);
  }
  if (call.dbias != nullptr) {
    norm_backward_write(p.dbias, column, call.dbias, column, p.parameters, gradients);
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_norm_backward_reference(const __grid_constant__ vitune::NormBackwardJudgeParams params) {
  vitune::norm_backward_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_norm_backward_plain(const __grid_constant__ vitune::NormBackwardJudgeParams params) {
  vitune::norm_backward_reference<float>(params);
}

extern "C" __global__ void __launch_bounds__(256) vitune_norm_backward_reference_columns(
    const __grid_constant__ vitune::NormBackwardJudgeParams params) {
  vitune::norm_backward_columns<double>(params);
}

extern "C" __global__ void __launch_bounds__(256) vitune_norm_backward_plain_columns(
    const __grid_constant__ vitune::NormBackwardJudgeParams params) {
  vitune::norm_backward_columns<float>(params);
}
