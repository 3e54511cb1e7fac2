// templates/window_attention_backward/params.cuh -- What the kernels of window attention's
// gradients are handed at launch.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh and
// window_attention/params.cuh come first; they are not named here because host and device find them
// by different paths. Pointers that a problem does without are null.
#pragma once

namespace vitune {

struct WindowAttentionBackwardParams {
  // As forward's kernels have it; its result is not given.
  WindowAttentionParams forward;
  const void* dout;         // strides as the result's
  void *dq, *dk, *dv;       // strides as those of q, k and v
  float* dbias;             // [dbias_windows, dbias_heads, n, n]; for a table in scratch memory
  float* dpadding;          // [3, heads, d]
  const int* index;         // [n, n]: the table's row of each entry of the bias
  float* dtable;            // [table_rows, dbias_heads]
  float* partials;          // scratch, [CTAs, n, n]: dbias over the windows of a CTA
  float* padding_partials;  // scratch, [CTAs, 2, d]: gradients of k and v of padding, likewise
  int dbias_windows, dbias_heads, table_rows;
  // CTA i has entry i % entries: a head of all windows, or of one window of each image. The windows
  // of an entry are shared out among `parts` CTAs.
  int entries, parts, instances;
};

}  // namespace vitune
