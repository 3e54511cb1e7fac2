// templates/reference/linear_statistics_entries.cuh -- Mean and 1 / deviation of the rows of x, for
// the judge of kernels that compute them themselves.
//
// A thread for each row, in double precision, the variance in a second pass.
#pragma once

#include "reference/linear_statistics_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

__device__ inline void linear_statistics(const LinearStatisticsParams& p, long long row) {
  double sum = 0, squares = 0;
  for (int k = 0; !p.rms && k < p.k; ++k) sum += element_value(p.x, row * p.x_row + k, p.type);
  const double mean = sum / p.k;
  for (int k = 0; k < p.k; ++k) {
    const double d = element_value(p.x, row * p.x_row + k, p.type) - mean;
    squares += d * d;
  }
  p.mean[row] = float(mean);
  p.rstd[row] = float(1 / sqrt(squares / p.k + p.eps));
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_linear_statistics(const __grid_constant__ vitune::LinearStatisticsParams params) {
  const long long step = (long long)(gridDim.x) * blockDim.x;
  for (long long row = (long long)(blockIdx.x) * blockDim.x + threadIdx.x; row < params.m;
       row += step) {
    vitune::linear_statistics(params, row);
  }
}
