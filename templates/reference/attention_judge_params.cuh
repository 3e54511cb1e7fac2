// templates/reference/attention_judge_params.cuh -- What attention's judge and yardstick are
// handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh and
// attention/dropout_params.cuh come first; they are not named here because host and device find
// them by different paths.
#pragma once

namespace vitune {

// The judge writes `out` [batch, heads, queries, head_size] and `lse` [batch, heads, queries],
// dense fp32; the yardstick writes call.o and call.lse like any kernel.
struct ReferenceParams {
  AttentionParams call;
  double scale;  // of the scores, unrounded
  float* out;
  float* lse;
  int head_size;
  int element;  // SupportType of q, k, v and o
  int bias;     // SupportType of the bias
  int causal;
  AttentionDropout dropout;  // no seed without
};

}  // namespace vitune
