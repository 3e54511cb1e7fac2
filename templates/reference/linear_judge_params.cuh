// templates/reference/linear_judge_params.cuh -- What a linear layer's judge and yardstick are
// handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. linear/params.cuh comes first; it
// is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct LinearJudgeParams {
  LinearParams call;
  float *out, *aux, *moments;    // null where there is no such output
  int type, output, parameters;  // SupportType
  int transposed;                // w is [k, n]
  int activation;                // 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 quick_gelu, 5 silu
  int derivative;                // the same: whose derivative, at call's residual; 0 none
  int periodic_residual;
  const float* given_moments;          // of x's rows: in the place of call's mean and rstd
  double eps;                          // what their variance is added
  float* out_moments;                  // call's
  const float* factor;                 // one for every call.period rows, or null
  int given_columns, written_columns;  // of a block of moments
};

}  // namespace vitune
