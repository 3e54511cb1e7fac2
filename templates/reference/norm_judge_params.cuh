// templates/reference/norm_judge_params.cuh -- What the norm's judge and yardstick are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. norm/params.cuh comes first; it is
// not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct NormJudgeParams {
  NormParams call;
  double eps;
  float *out, *sum, *second, *mean, *rstd;  // null where there is no such output
  int columns;
  int input, output, parameters, second_type;  // SupportType
  int rms;
};

}  // namespace vitune
