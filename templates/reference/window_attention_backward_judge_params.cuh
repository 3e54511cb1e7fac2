// templates/reference/window_attention_backward_judge_params.cuh -- What the judge and the
// yardstick of window attention's gradients are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh,
// window_attention/params.cuh and window_attention_backward/params.cuh come first; they are not
// named here because host and device find them by different paths.
#pragma once

namespace vitune {

// The judge writes its answers dense, in fp32; the yardstick writes call's outputs like any kernel.
struct WindowAttentionBackwardJudgeParams {
  WindowAttentionBackwardParams call;
  float *dq, *dk, *dv, *dbias, *dtable, *dpadding;  // null where there is no such output
  // Scratch, fp64 or fp32: of each row its largest score, the sum of its weights and its delta; dk
  // and dv of each key of a window, where padding's are asked for; dbias.
  void *rows, *padding, *sums;
  // As WindowAttentionJudgeParams has them.
  double scale;
  int head_size;
  int window_rows, window_columns;
  int grid, pads_first;
  int element, bias;
};

}  // namespace vitune
