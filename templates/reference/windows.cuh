// templates/reference/windows.cuh -- Windows of images by the definition, for the judges of window
// attention and of its gradients: pixels, elements, scores.
//
// With double for the answer; with float for the yardstick, whose weights are rounded to 16 bits.
#pragma once

#include "attention/params.cuh"
#include "reference/numbers.cuh"
#include "window_attention/params.cuh"
// After what it is made of.
#include "reference/window_attention_judge_params.cuh"

namespace vitune {

inline constexpr int kWindowMaxHead = 128;

__device__ inline double window_exp(double x) { return exp(x); }
__device__ inline float window_exp(float x) { return expf(x); }
__device__ inline double window_weight(double p, int) { return p; }
__device__ inline float window_weight(float p, int element) {
  return value16(bits16(p, element), element);
}

// The pixel that is row `row` of window `window` of an image; -1: it is padding. Written by the
// definition: partition, roll and pad are undone one after the other.
__device__ inline long long window_pixel(const WindowAttentionJudgeParams& p, int window, int row) {
  const WindowAttentionParams& call = p.call;
  const int across = int(call.by_window_columns.value);
  int y = row / p.window_columns, x = row % p.window_columns;
  if (p.grid) {
    y = y * (call.rows / p.window_rows) + window / across;
    x = x * (call.columns / p.window_columns) + window % across;
  } else {
    y += window / across * p.window_rows;
    x += window % across * p.window_columns;
  }
  const int padded_rows = call.windows / across * p.window_rows;
  const int padded_columns = across * p.window_columns;
  if (p.pads_first) {
    y = (y + call.shift_rows) % padded_rows;
    x = (x + call.shift_columns) % padded_columns;
  }
  if (y >= call.rows || x >= call.columns) return -1;
  if (!p.pads_first) {
    y = (y + call.shift_rows) % call.rows;
    x = (x + call.shift_columns) % call.columns;
  }
  return (long long)(y)*call.columns + x;
}

// A head of one window of one image.
struct RefPair {
  long long image, head;
  int window;
};

// Element `at` of q, k or v (`which`) of a row of the window.
template <class Scalar>
__device__ inline Scalar window_element(const WindowAttentionJudgeParams& p, const RefPair& pair,
                                        int which, long long pixel, int at) {
  const AttentionParams& call = p.call.call;
  const AttentionView& view = which == 0 ? call.q_view : which == 1 ? call.k_view : call.v_view;
  const void* data = which == 0 ? call.q : which == 1 ? call.k : call.v;
  if (pixel >= 0) {
    const long long place = pair.image * view.batch + pixel * view.row + pair.head * view.head + at;
    return Scalar(value16(static_cast<const RefU16*>(data)[place], p.element));
  }
  if (p.call.padding == nullptr) return Scalar(0);
  const long long place = (which * (long long)(call.heads) + pair.head) * p.head_size + at;
  return Scalar(value16(static_cast<const RefU16*>(p.call.padding)[place], p.element));
}

template <class Scalar>
__device__ inline Scalar window_score(const WindowAttentionJudgeParams& p, const RefPair& pair,
                                      int row, long long pixel, int key) {
  const AttentionParams& call = p.call.call;
  const long long key_pixel = window_pixel(p, pair.window, key);
  Scalar sum = 0;
  for (int i = 0; i < p.head_size; ++i) {
    sum += window_element<Scalar>(p, pair, 0, pixel, i) *
           window_element<Scalar>(p, pair, 1, key_pixel, i);
  }
  sum *= Scalar(p.scale);
  if (call.bias == nullptr) return sum;
  const AttentionScoreView& view = call.bias_view;
  const long long at = pair.window % view.batches * view.batch + pair.head * view.head +
                       row * view.row + key * view.key;
  return sum + Scalar(element_value(call.bias, at, p.bias));
}

}  // namespace vitune
