// templates/reference/window_attention_judge_params.cuh -- What window attention's judge and
// yardstick are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh and
// window_attention/params.cuh come first; they are not named here because host and device find them
// by different paths.
#pragma once

namespace vitune {

// The judge writes its answer dense, in fp32; the yardstick writes call.call.o like any kernel.
struct WindowAttentionJudgeParams {
  WindowAttentionParams call;
  double scale;
  float* out;  // [image, pixel, head, head_size]
  int head_size;
  int window_rows, window_columns;
  int grid, pads_first;
  int element, bias;  // SupportType
};

}  // namespace vitune
