// templates/reference/linear_statistics_params.cuh -- What the judge of a linear layer's own
// statistics is handed.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
#pragma once

namespace vitune {

struct LinearStatisticsParams {
  const void* x;       // [m, k]
  float *mean, *rstd;  // [m]
  double eps;
  long long x_row;
  int m, k;
  int type;  // SupportType
  int rms;   // of the mean square: mean is 0
};

}  // namespace vitune
