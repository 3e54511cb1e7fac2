// templates/linear_weight_grad/params.cuh -- What the kernels of a weight gradient are handed at
// launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. Strides are in
// elements, from a row to the next; pointers that a problem does without are null.
#pragma once

namespace vitune {

struct WeightGradParams {
  const void* dy;             // [m, n]
  const void* x;              // [m, k]
  const void* scale;          // [n]
  const void* w;              // [n, k]
  const void* b;              // [n]
  const void* dw_before;      // [n, k]; it and the next two are what is added to
  const void* db_before;      // [n]
  const void* dscale_before;  // [n]
  void* dw;                   // [n, k]
  void* db;                   // [n]
  void* dscale;               // [n]
  float* partials;            // [splits, n, k]: the products of each part of the rows
  float* column_sums;         // [column_parts, n]: of dy, of some rows each
  long long dy_row, x_row;
  int m, n, k;
  int splits;        // parts of the rows, each with CTAs of its own
  int column_parts;  // of the sums of dy that the second kernel adds
};

}  // namespace vitune
