// benchmarks/lab/linear/sm90_params.cuh -- What a linear kernel is handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it, so both sides
// share one definition.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {

// By two neighbouring columns: what sums are multiplied by (kNorm: sums of the columns of the
// folded weights), and what is added.
struct alignas(16) LinearColumns {
  float factor[2], addend[2];
};

// Of a row of x: the reciprocal of its standard deviation, and its mean times that.
struct alignas(8) LinearRow {
  float rstd, mean_rstd;
};

// Of the columns of a tile in a row of y: their mean, and the sum of their squared distances to it.
struct alignas(8) LinearMoments {
  float mean, m2;
};

struct LinearParams {
  const LinearColumns* columns;  // [n / 2]
  const LinearRow* rows;         // [m]; null unless kNorm
  LinearMoments* moments;        // [m, n tiles]; null unless kMoments
  int m, n, k;
  int n_units, units;  // tiles or pairs of tiles along n, and of all of y
};

// How the tensor memory accelerator sees x [m, k], w [n, k], y and the residual [m, n], over
// {column, row}: CUtensorMap of the CUDA driver API. Boxes and swizzles: LinearTraits.
struct alignas(128) LinearTensorMaps {
  unsigned char x[128], w[128], y[128], residual[128];
};

}  // namespace vitune
