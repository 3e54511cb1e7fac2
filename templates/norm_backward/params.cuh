// templates/norm_backward/params.cuh -- What the kernels of a norm's gradients are handed at
// launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. Strides are in
// elements, from a row to the next; pointers that a problem does without are null.
#pragma once

namespace vitune {

struct NormBackwardParams {
  const void* dy;        // [rows, columns]
  const void* x;         // [rows, columns]
  const float* mean;     // [rows]
  const float* rstd;     // [rows]
  const void* weight;    // [columns]
  const void* residual;  // as x: the gradient that dx is added to
  const float* factor;   // [rows / factor_rows]
  void* dx;              // as x
  void* second;          // [rows, columns]
  void* dweight;         // [columns]
  void* dbias;           // [columns]
  float* partials;       // [parts, sums, columns]: of dy x^ and of dy, those that are asked for
  long long dy_row, x_row, residual_row, dx_row, second_row;
  int rows;
  int factor_rows;  // rows that share a factor
  int parts;        // of the sums over rows that the second kernel adds
  float eps;
};

}  // namespace vitune
