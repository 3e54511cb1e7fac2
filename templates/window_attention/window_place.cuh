// templates/window_attention/window_place.cuh -- Which pixel of which image a row of a window is.
#pragma once

#include "attention/division.cuh"
#include "attention/params.cuh"
#include "window_attention/params.cuh"

namespace vitune {

// A (window, head) pair. Pairs are numbered with the heads of a window next to each other, whose
// parts of a pixel lie side by side, then windows from left to right, rows of them, images.
template <class T>
struct WindowPlace {
  int head, window, image;  // the window's number is among those of all images
  int y, x;                 // the window's first pixel, in the rolled image

  __device__ __forceinline__ WindowPlace(const WindowAttentionParams& p, int pair) {
    window = quotient(pair, p.call.by_heads);
    head = pair - window * p.call.heads;
    image = quotient(window, p.by_windows);
    const int place = window - image * p.windows;
    const int down = quotient(place, p.by_window_columns);
    const int right = place - down * int(p.by_window_columns.value);
    y = T::kGrid ? down : down * T::kWindowRows;
    x = T::kGrid ? right : right * T::kWindowColumns;
  }

  // The number in its image of the pixel that is row `row` of the window; -1: it is padding.
  __device__ __forceinline__ int pixel(const WindowAttentionParams& p, int row) const {
    const int i = row / T::kWindowColumns, j = row % T::kWindowColumns;
    int at_y = y + (T::kGrid ? i * p.row_step : i);
    int at_x = x + (T::kGrid ? j * p.column_step : j);
    if (T::kPadded && !T::kPadsFirst && is_beyond(p, at_y, at_x)) return -1;
    if constexpr (T::kShifted) {
      at_y = rolled(at_y + p.shift_rows, p.roll_rows);
      at_x = rolled(at_x + p.shift_columns, p.roll_columns);
    }
    if (T::kPadded && T::kPadsFirst && is_beyond(p, at_y, at_x)) return -1;
    return at_y * p.columns + at_x;
  }

 private:
  static __device__ __forceinline__ bool is_beyond(const WindowAttentionParams& p, int at_y,
                                                   int at_x) {
    return at_y >= p.rows || at_x >= p.columns;
  }
  static __device__ __forceinline__ int rolled(int at, int extent) {
    return at >= extent ? at - extent : at;
  }
};

}  // namespace vitune
