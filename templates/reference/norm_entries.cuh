// templates/reference/norm_entries.cuh -- The judge of every norm, and its yardstick.
//
// A warp has a row and reads it from memory in each pass. With double it is the judge; with float
// the yardstick: what a model does that adds, rounds the sum to its type, and normalises that in
// fp32.
#pragma once

#include "norm/params.cuh"
#include "reference/norm_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

template <class Scalar>
__device__ inline Scalar norm_warp_sum(Scalar value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ inline void norm_put(void* data, long long at, float value, int type) {
  if (type == kSupportFp32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<RefU16*>(data)[at] = bits16(value, type);
  }
}

// As the stored sum has it.
__device__ inline float norm_rounded(float value, int type) {
  return type == kSupportFp32 ? value : value16(bits16(value, type), type);
}
__device__ inline double norm_rounded(double value, int) { return value; }

// x + residual.
template <class Scalar>
__device__ inline Scalar norm_input(const NormJudgeParams& p, long long row, int column) {
  const Scalar x = element_value(p.call.x, row * p.call.x_row + column, p.input);
  if (p.call.residual == nullptr) return x;
  const Scalar added = element_value(p.call.residual, row * p.call.residual_row + column, p.input);
  return norm_rounded(x + added, p.input);
}

__device__ inline void norm_write(const NormJudgeParams& p, long long row, int column, double y,
                                  double sum) {
  const long long at = row * p.columns + column;
  p.out[at] = float(y);
  if (p.second != nullptr) p.second[at] = float(y);
  if (p.sum != nullptr) p.sum[at] = float(sum);
}
__device__ inline void norm_write(const NormJudgeParams& p, long long row, int column, float y,
                                  float sum) {
  const NormParams& call = p.call;
  norm_put(call.out, row * call.out_row + column, y, p.output);
  if (call.second != nullptr) {
    norm_put(call.second, row * call.second_row + column, y, p.second_type);
  }
  if (call.sum != nullptr) norm_put(call.sum, row * call.sum_row + column, sum, p.input);
}

__device__ inline float* norm_mean(const NormJudgeParams& p, double) { return p.mean; }
__device__ inline float* norm_mean(const NormJudgeParams& p, float) { return p.call.mean; }
__device__ inline float* norm_rstd(const NormJudgeParams& p, double) { return p.rstd; }
__device__ inline float* norm_rstd(const NormJudgeParams& p, float) { return p.call.rstd; }

template <class Scalar>
__device__ inline void norm_row(const NormJudgeParams& p, long long row) {
  const int lane = threadIdx.x % 32;
  Scalar mean = 0, squares = 0;
  if (!p.rms) {
    for (int c = lane; c < p.columns; c += 32) mean += norm_input<Scalar>(p, row, c);
    mean = norm_warp_sum(mean) / Scalar(p.columns);
  }
  for (int c = lane; c < p.columns; c += 32) {
    const Scalar distance = norm_input<Scalar>(p, row, c) - mean;
    squares += distance * distance;
  }
  const Scalar variance = norm_warp_sum(squares) / Scalar(p.columns);
  const Scalar rstd = Scalar(1) / sqrt(variance + Scalar(p.eps));
  for (int c = lane; c < p.columns; c += 32) {
    const Scalar sum = norm_input<Scalar>(p, row, c);
    Scalar y = (sum - mean) * rstd;
    if (p.call.weight != nullptr) y *= Scalar(element_value(p.call.weight, c, p.parameters));
    if (p.call.bias != nullptr) y += Scalar(element_value(p.call.bias, c, p.parameters));
    norm_write(p, row, c, y, sum);
  }
  if (lane != 0) return;
  if (norm_mean(p, mean) != nullptr) norm_mean(p, mean)[row] = float(mean);
  if (norm_rstd(p, mean) != nullptr) norm_rstd(p, mean)[row] = float(rstd);
}

template <class Scalar>
__device__ inline void norm_reference(const NormJudgeParams& p) {
  const long long warps = (long long)(gridDim.x) * blockDim.x / 32;
  for (long long row = (long long)(global_thread()) / 32; row < p.call.rows; row += warps) {
    norm_row<Scalar>(p, row);
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_norm_reference(const __grid_constant__ vitune::NormJudgeParams params) {
  vitune::norm_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_norm_plain(const __grid_constant__ vitune::NormJudgeParams params) {
  vitune::norm_reference<float>(params);
}
