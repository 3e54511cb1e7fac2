// templates/reference/linear_weight_grad_entries.cuh -- The judge of every weight gradient, and its
// yardstick.
//
// Two kernels, and memory between them: the products, sixteen rows by sixteen columns at a time, a
// thread for each, with one more column for the sums of dy's rows; then the gradients, a CTA for
// each row of dw. With double it is the judge; with float the yardstick: matrix units add sixteen
// products to a sum in fp32 and cut off what does not fit.
#pragma once

#include "linear_weight_grad/params.cuh"
#include "reference/linear_weight_grad_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

inline constexpr int kWeightGradSide = 16, kWeightGradThreads = 256;

// sum + more, of the latter sixteen products that were added exactly.
__device__ inline void weight_grad_add(double& sum, double more) { sum += more; }
__device__ inline void weight_grad_add(float& sum, double more) {
  const double whole = double(sum) + more;
  float cut = float(whole);
  if (fabs(double(cut)) > fabs(whole)) cut = __uint_as_float(__float_as_uint(cut) - 1);
  sum = cut;
}

__device__ inline double weight_grad_dy(const WeightGradJudgeParams& p, int row, int column) {
  if (row >= p.call.m || column >= p.call.n) return 0;
  return element_value(p.call.dy, row * p.call.dy_row + column, p.type);
}
// Behind the last column there is one of ones.
__device__ inline double weight_grad_x(const WeightGradJudgeParams& p, int row, int column) {
  if (row >= p.call.m || column > p.call.k) return 0;
  return column == p.call.k ? 1 : element_value(p.call.x, row * p.call.x_row + column, p.type);
}

template <class Scalar>
__device__ inline void weight_grad_products(const WeightGradJudgeParams& p) {
  constexpr int kSide = kWeightGradSide;
  __shared__ double dy[kSide][kSide + 1], x[kSide][kSide + 1];
  const int i = threadIdx.x / kSide, j = threadIdx.x % kSide;
  const int columns = p.call.k + 1, across = (columns + kSide - 1) / kSide;
  const long long tiles = (long long)(across) * ((p.call.n + kSide - 1) / kSide);
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int n0 = int(tile / across) * kSide, k0 = int(tile % across) * kSide;
    Scalar sum = 0;
    for (int row = 0; row < p.call.m; row += kSide) {
      dy[i][j] = weight_grad_dy(p, row + i, n0 + j);
      x[i][j] = weight_grad_x(p, row + i, k0 + j);
      __syncthreads();
      double more = 0;
      for (int step = 0; step < kSide; ++step) more += dy[step][i] * x[step][j];
      weight_grad_add(sum, more);
      __syncthreads();
    }
    if (n0 + i >= p.call.n || k0 + j >= columns) continue;
    static_cast<Scalar*>(p.products)[(long long)(n0 + i) * columns + k0 + j] = sum;
  }
}

// One gradient: the answer in fp32, or what the call's outputs have.
__device__ inline void weight_grad_write(const WeightGradJudgeParams& p, float* answer, void*,
                                         const void* before, long long at, double value) {
  if (before != nullptr) value += element_value(before, at, p.output);
  answer[at] = float(value);
}
__device__ inline void weight_grad_write(const WeightGradJudgeParams& p, float*, void* to,
                                         const void* before, long long at, float value) {
  if (before != nullptr) value += element_value(before, at, p.output);
  if (p.output == kSupportFp32) {
    static_cast<float*>(to)[at] = value;
  } else {
    static_cast<RefU16*>(to)[at] = bits16(value, p.output);
  }
}

template <class Scalar>
__device__ inline void weight_grad_gradients(const WeightGradJudgeParams& p) {
  __shared__ Scalar sums[kWeightGradThreads];
  const WeightGradParams& call = p.call;
  for (int row = blockIdx.x; row < call.n; row += gridDim.x) {
    const Scalar* const products =
        static_cast<const Scalar*>(p.products) + (long long)(row) * (call.k + 1);
    const Scalar scale =
        call.scale == nullptr ? Scalar(1) : Scalar(element_value(call.scale, row, p.parameters));
    Scalar dot = 0;
    for (int column = threadIdx.x; column < call.k; column += kWeightGradThreads) {
      const long long at = (long long)(row)*call.k + column;
      if (call.w != nullptr) {
        dot += Scalar(element_value(call.w, at, p.parameters)) * products[column];
      }
      weight_grad_write(p, p.dw, call.dw, call.dw_before, at, scale * products[column]);
    }
    sums[threadIdx.x] = dot;
    __syncthreads();
    if (threadIdx.x == 0) {
      const Scalar sum = products[call.k];
      if (call.db != nullptr) {
        weight_grad_write(p, p.db, call.db, call.db_before, row, scale * sum);
      }
      for (int i = 1; i < kWeightGradThreads; ++i) dot += sums[i];
      if (call.b != nullptr) dot += Scalar(element_value(call.b, row, p.parameters)) * sum;
      if (call.dscale != nullptr) {
        weight_grad_write(p, p.dscale, call.dscale, call.dscale_before, row, dot);
      }
    }
    __syncthreads();
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_weight_grad_reference(const __grid_constant__ vitune::WeightGradJudgeParams params) {
  vitune::weight_grad_products<double>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_weight_grad_plain(const __grid_constant__ vitune::WeightGradJudgeParams params) {
  vitune::weight_grad_products<float>(params);
}

extern "C" __global__ void __launch_bounds__(256) vitune_weight_grad_reference_gradients(
    const __grid_constant__ vitune::WeightGradJudgeParams params) {
  vitune::weight_grad_gradients<double>(params);
}

extern "C" __global__ void __launch_bounds__(256) vitune_weight_grad_plain_gradients(
    const __grid_constant__ vitune::WeightGradJudgeParams params) {
  vitune::weight_grad_gradients<float>(params);
}
