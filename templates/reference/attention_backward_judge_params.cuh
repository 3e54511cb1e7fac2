// templates/reference/attention_backward_judge_params.cuh -- What the judge and the yardstick of
// attention's gradients are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh,
// attention/dropout_params.cuh, attention_backward/params.cuh and
// reference/attention_judge_params.cuh come first; they are not
// named here because host and device find them by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct AttentionBackwardJudgeParams {
  AttentionBackwardParams call;
  ReferenceParams forward;      // whose inputs, out and lse the call is given; its answers are null
  float *dq, *dk, *dv, *dbias;  // null where there is no such output
  void* delta;                  // [batch, heads, queries], fp64 or fp32
  int dbias_type;               // SupportType
};

}  // namespace vitune
