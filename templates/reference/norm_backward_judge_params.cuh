// templates/reference/norm_backward_judge_params.cuh -- What the judge and the yardstick of norms'
// gradients are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. norm_backward/params.cuh comes
// first; it is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct NormBackwardJudgeParams {
  NormBackwardParams call;
  double eps;
  float *dx, *second, *dweight, *dbias;  // null where there is no such output
  void* statistics;                      // [rows, 2], fp64 or fp32: mean and rstd, between kernels
  int columns;
  int gradient, stream, parameters, second_type;  // SupportType
  int rms;
};

}  // namespace vitune
