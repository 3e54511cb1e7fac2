// templates/reference/packed_attention_judge_params.cuh -- What packed attention's judge and
// yardstick are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh and
// packed_attention/params.cuh come first; they are not named here because host and device find them
// by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call.call.o and lse like any
// kernel.
struct PackedAttentionJudgeParams {
  PackedAttentionParams call;
  double scale;
  float* out;  // [token, head, head_size]
  float* lse;  // [head, token]; null unless asked for
  int head_size, causal;
  int element;  // SupportType
};

}  // namespace vitune
