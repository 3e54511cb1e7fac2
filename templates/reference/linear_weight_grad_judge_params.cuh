// templates/reference/linear_weight_grad_judge_params.cuh -- What a weight gradient's judge and
// yardstick are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. linear_weight_grad/params.cuh
// comes first; it is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct WeightGradJudgeParams {
  WeightGradParams call;
  float *dw, *db, *dscale;       // null where there is no such output
  void* products;                // [n, k + 1], fp64 or fp32: dy' x, and the sums of dy's rows
  int type, output, parameters;  // SupportType
};

}  // namespace vitune
