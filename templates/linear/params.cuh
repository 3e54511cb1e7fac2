// templates/linear/params.cuh -- What the kernels of a linear layer are handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. Strides are in
// elements, from a row to the next; pointers that a problem does without are null. What cannot be
// asked together has one place.
#pragma once

namespace vitune {

struct LinearParams {
  const void* x;         // [m, k]
  const void* w;         // [n, k], or [k, n]
  const void* bias;      // [n]
  const void* scale;     // [n]
  const void* residual;  // [m, n], or [period, n]; or pre, where a derivative is taken
  void* out;             // [m, n]; each period of rows begins `spread` rows after the one before
  void* aux;          // [m, n]: the sums with their bias, before the activation; or of pre, after
  const float* mean;  // [m]; or factor, [m / period]
  const float* rstd;  // [m]
  const float* weight_sums;  // [n]: of w over k
  float* partials;           // [splits, m, n]: the sums of each split
  long long x_row, w_row, residual_row, out_row, aux_row;
  int m, n, k;
  int period;         // rows, 0 if neither the residual nor the result nor a factor knows one
  int spread;         // rows of the result from a period to the next
  int splits;         // parts of k, each with CTAs of its own
  int split_columns;  // of k in all of them but the last ones
};

}  // namespace vitune
