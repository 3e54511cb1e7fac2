// templates/norm/params.cuh -- What a norm kernel is handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. Strides are in
// elements, from a row to the next; pointers that a problem does without are null.
#pragma once

namespace vitune {

struct NormParams {
  const void* x;         // [rows, columns]
  const void* residual;  // as x
  const void* weight;    // [columns]
  const void* bias;      // [columns]
  void* out;             // [rows, columns]
  void* sum;             // as x
  void* second;          // as out
  float* mean;           // [rows]
  float* rstd;           // [rows]
  long long x_row, residual_row, out_row, sum_row, second_row;
  long long rows;
  float eps;
};

}  // namespace vitune
