// templates/reference/linear_entries.cuh -- The judge of every linear layer, and its yardstick.
//
// Sixteen rows by sixteen columns of the result at a time, a thread for each, the operands by way
// of shared memory. With double it is the judge; with float the yardstick: what a model does that
// rounds to its type after the product with its bias, the activation, the scale and the residual.
#pragma once

#include "linear/params.cuh"
#include "reference/linear_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

inline constexpr int kLinearSide = 16;

__device__ inline double linear_exp(double x) { return exp(x); }
__device__ inline float linear_exp(float x) { return expf(x); }
// Twice the distribution function of a normal number. As double by erfc: 1 + erf has nothing left
// where x is far below 0.
__device__ inline double linear_normal(double x) { return erfc(-x * 0.70710678118654752440); }
__device__ inline float linear_normal(float x) { return 1.f + erff(x * 0.70710678f); }

template <class Scalar>
__device__ inline Scalar linear_active(Scalar x, int kind) {
  const Scalar one = Scalar(1), half = Scalar(0.5);
  if (kind == 1) return x < Scalar(0) ? Scalar(0) : x;
  if (kind == 2) return half * x * linear_normal(x);
  if (kind == 3) {
    const Scalar inner = Scalar(0.79788456080286535588) * (x + Scalar(0.044715) * x * x * x);
    return x / (one + linear_exp(Scalar(-2) * inner));  // x (1 + tanh) / 2 far below 0 too
  }
  if (kind == 4) return x / (one + linear_exp(Scalar(-1.702) * x));
  if (kind == 5) return x / (one + linear_exp(-x));
  return x;
}

// The derivative of the same functions.
template <class Scalar>
__device__ inline Scalar linear_slope(Scalar x, int kind) {
  const Scalar one = Scalar(1), half = Scalar(0.5);
  if (kind == 1) return x > Scalar(0) ? one : Scalar(0);
  if (kind == 2) {
    const Scalar density = Scalar(0.39894228040143267794) * linear_exp(-half * x * x);
    return half * linear_normal(x) + x * density;
  }
  // x s(u(x)): s + x s (1 - s) u'.
  Scalar u = x, rise = one;
  if (kind == 3) {
    const Scalar root = Scalar(0.79788456080286535588), cubic = Scalar(0.044715);
    u = Scalar(2) * root * (x + cubic * x * x * x);
    rise = Scalar(2) * root * (one + Scalar(3) * cubic * x * x);
  } else if (kind == 4) {
    u = Scalar(1.702) * x;
    rise = Scalar(1.702);
  }
  const Scalar share = one / (one + linear_exp(-u)), rest = one / (one + linear_exp(u));
  return share + x * share * rest * rise;
}

// As a stored tensor has it.
__device__ inline float linear_rounded(float value, int type) {
  return type == kSupportFp32 ? value : value16(bits16(value, type), type);
}
__device__ inline double linear_rounded(double value, int) { return value; }

__device__ inline void linear_put(void* data, long long at, float value, int type) {
  if (type == kSupportFp32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<RefU16*>(data)[at] = bits16(value, type);
  }
}

// Element `i` of the tile's row or column of an operand: 0 behind the last.
template <class Scalar>
__device__ inline Scalar linear_x(const LinearJudgeParams& p, long long row, int k) {
  if (row >= p.call.m || k >= p.call.k) return 0;
  return element_value(p.call.x, row * p.call.x_row + k, p.type);
}
template <class Scalar>
__device__ inline Scalar linear_w(const LinearJudgeParams& p, long long column, int k) {
  if (column >= p.call.n || k >= p.call.k) return 0;
  const long long at = p.transposed ? k * p.call.w_row + column : column * p.call.w_row + k;
  return element_value(p.call.w, at, p.type);
}

// Element of the matrix that is read beside the products: the residual, or pre.
template <class Scalar>
__device__ inline Scalar linear_read(const LinearJudgeParams& p, long long row, int column) {
  const long long from = p.periodic_residual ? row % p.call.period : row;
  return Scalar(element_value(p.call.residual, from * p.call.residual_row + column, p.output));
}

// Where row `row` of the result lies.
__device__ inline long long linear_out_row(const LinearParams& call, long long row) {
  if (call.period == 0) return row;
  return row / call.period * call.spread + row % call.period;
}

__device__ inline void linear_write(const LinearJudgeParams& p, long long row, int column, double y,
                                    double before) {
  const long long at = row * p.call.n + column;
  p.out[at] = float(y);
  if (p.aux != nullptr) p.aux[at] = float(before);
}
__device__ inline void linear_write(const LinearJudgeParams& p, long long row, int column, float y,
                                    float before) {
  const LinearParams& call = p.call;
  linear_put(call.out, linear_out_row(call, row) * call.out_row + column, y, p.output);
  if (call.aux != nullptr) linear_put(call.aux, row * call.aux_row + column, before, p.type);
}

// The shift and the factor of rows.
template <class Scalar>
struct LinearRow {
  Scalar mean, rstd;
};

template <class Scalar>
__device__ inline LinearRow<Scalar> linear_row(const LinearJudgeParams& p, long long row) {
  const LinearParams& call = p.call;
  if (p.given_moments == nullptr) {
    return {call.mean == nullptr ? Scalar(0) : Scalar(call.mean[row]),
            call.rstd == nullptr ? Scalar(1) : Scalar(call.rstd[row])};
  }
  const int columns = p.given_columns, blocks = call.k / columns;
  const float* const of_row = p.given_moments + row * blocks * 2;
  Scalar sum = 0, squares = 0;
  for (int i = 0; i < blocks; ++i) sum += Scalar(of_row[2 * i]);
  const Scalar mean = sum / Scalar(blocks);
  for (int i = 0; i < blocks; ++i) {
    const Scalar distance = Scalar(of_row[2 * i]) - mean;
    squares += Scalar(of_row[2 * i + 1]) + Scalar(columns) * distance * distance;
  }
  return {mean, Scalar(1) / Scalar(sqrt(squares / Scalar(call.k) + Scalar(p.eps)))};
}

template <class Scalar>
__device__ inline void linear_end(const LinearJudgeParams& p, long long row, int column,
                                  Scalar sum) {
  const LinearParams& call = p.call;
  if (row >= call.m || column >= call.n) return;
  if (p.derivative != 0) {
    const Scalar pre = linear_read<Scalar>(p, row, column);
    const Scalar y = linear_rounded(sum, p.output) * linear_slope(pre, p.derivative);
    linear_write(p, row, column, y, linear_active(pre, p.derivative));
    return;
  }
  const LinearRow<Scalar> of_row = linear_row<Scalar>(p, row);
  if (call.weight_sums != nullptr) sum -= of_row.mean * Scalar(call.weight_sums[column]);
  sum *= of_row.rstd;
  if (call.bias != nullptr) sum += Scalar(element_value(call.bias, column, p.parameters));
  Scalar y = linear_rounded(linear_active(linear_rounded(sum, p.output), p.activation), p.output);
  if (call.scale != nullptr) {
    y = linear_rounded(y * Scalar(element_value(call.scale, column, p.parameters)), p.output);
  }
  if (p.factor != nullptr) {
    y = linear_rounded(y * Scalar(p.factor[row / call.period]), p.output);
  }
  if (call.residual != nullptr) y += linear_read<Scalar>(p, row, column);
  linear_write(p, row, column, y, sum);
}

template <class Scalar>
__device__ inline void linear_reference(const LinearJudgeParams& p) {
  __shared__ Scalar x[kLinearSide][kLinearSide + 1], w[kLinearSide][kLinearSide + 1];
  const int i = threadIdx.x / kLinearSide, j = threadIdx.x % kLinearSide;
  const long long across = (p.call.n + kLinearSide - 1) / kLinearSide;
  const long long down = ((long long)(p.call.m) + kLinearSide - 1) / kLinearSide;
  for (long long tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
    const long long row = tile / across * kLinearSide;
    const long long column = tile % across * kLinearSide;
    Scalar sum = 0;
    for (int k = 0; k < p.call.k; k += kLinearSide) {
      x[i][j] = linear_x<Scalar>(p, row + i, k + j);
      w[i][j] = linear_w<Scalar>(p, column + i, k + j);
      __syncthreads();
      for (int step = 0; step < kLinearSide; ++step) sum += x[i][step] * w[j][step];
      __syncthreads();
    }
    linear_end(p, row + i, int(column) + j, sum);
  }
}

// The result as it is stored, of the answer before it or of the yardstick.
__device__ inline double linear_stored(const LinearJudgeParams& p, long long row, int column,
                                       double) {
  return linear_rounded(p.out[row * p.call.n + column], p.output);
}
__device__ inline float linear_stored(const LinearJudgeParams& p, long long row, int column,
                                      float) {
  const long long at = linear_out_row(p.call, row) * p.call.out_row + column;
  return element_value(p.call.out, at, p.output);
}

// Behind the result: a thread for a block of a row's columns.
template <class Scalar>
__device__ inline void linear_moments(const LinearJudgeParams& p, float* to) {
  const int columns = p.written_columns, blocks = p.call.n / columns;
  const long long all = (long long)(p.call.m) * blocks;
  for (long long i = blockIdx.x * (long long)(blockDim.x) + threadIdx.x; i < all;
       i += (long long)(gridDim.x) * blockDim.x) {
    const long long row = i / blocks;
    const int column = int(i % blocks) * columns;
    Scalar mean = 0, squares = 0;
    for (int j = 0; j < columns; ++j) {
      mean += linear_stored(p, row, column + j, Scalar(0)) / Scalar(columns);
    }
    for (int j = 0; j < columns; ++j) {
      const Scalar distance = linear_stored(p, row, column + j, Scalar(0)) - mean;
      squares += distance * distance;
    }
    to[2 * i] = float(mean);
    to[2 * i + 1] = float(squares);
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_linear_reference(const __grid_constant__ vitune::LinearJudgeParams params) {
  vitune::linear_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_linear_plain(const __grid_constant__ vitune::LinearJudgeParams params) {
  vitune::linear_reference<float>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_linear_reference_moments(const __grid_constant__ vitune::LinearJudgeParams params) {
  vitune::linear_moments<double>(params, params.moments);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_linear_plain_moments(const __grid_constant__ vitune::LinearJudgeParams params) {
  vitune::linear_moments<float>(params, params.out_moments);
}
