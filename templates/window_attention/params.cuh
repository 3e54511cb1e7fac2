// templates/window_attention/params.cuh -- What a window attention kernel is handed at launch.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh comes first;
// it is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

struct WindowAttentionParams {
  // Attention in the windows, which are its batch. The views are over [image, head, pixel, d];
  // those of the bias over [windows of an image or 1, heads or 1, n, n].
  AttentionParams call;
  const void* padding;        // [3, heads, d]: what q, k and v are beyond an image; null: zeros
  int rows, columns;          // of an image, in pixels
  int windows;                // of an image
  int row_step, column_step;  // from a pixel of a window to the next: 1, but in a grid
  // Pixel (y, x) of the rolled image is pixel (y + shift_rows, x + shift_columns), modulo these.
  int shift_rows, shift_columns, roll_rows, roll_columns;
  AttentionDivisor by_windows, by_window_columns;  // of an image; side by side in an image
};

}  // namespace vitune
