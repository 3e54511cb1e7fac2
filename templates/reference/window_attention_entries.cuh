// templates/reference/window_attention_entries.cuh -- The judge of window attention, its yardstick.
//
// A thread has one query: it looks for the largest score, then adds up weights and weighted values.
// With double it is the judge; with float the yardstick: fp32 scores and sums, weights rounded to
// 16 bits before they meet v, a result rounded to 16 bits.
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

__device__ inline void window_write(const WindowAttentionJudgeParams& p, const RefPair& pair,
                                    long long pixel, int at, double value) {
  const long long pixels = (long long)(p.call.rows) * p.call.columns;
  p.out[((pair.image * pixels + pixel) * p.call.call.heads + pair.head) * p.head_size + at] =
      float(value);
}
__device__ inline void window_write(const WindowAttentionJudgeParams& p, const RefPair& pair,
                                    long long pixel, int at, float value) {
  const AttentionView& view = p.call.call.o_view;
  static_cast<RefU16*>(
      p.call.call.o)[pair.image * view.batch + pixel * view.row + pair.head * view.head + at] =
      bits16(value, p.element);
}

template <class Scalar>
__device__ inline void window_row(const WindowAttentionJudgeParams& p, const RefPair& pair,
                                  int row) {
  const long long pixel = window_pixel(p, pair.window, row);
  if (pixel < 0) return;
  const int keys = p.window_rows * p.window_columns;
  Scalar most = Scalar(reference_minus_infinity()), sum = 0;
  for (int key = 0; key < keys; ++key) {
    const Scalar score = window_score<Scalar>(p, pair, row, pixel, key);
    if (score > most) most = score;
  }
  Scalar values[kWindowMaxHead];
  for (int i = 0; i < p.head_size; ++i) values[i] = 0;
  const bool empty = most == Scalar(reference_minus_infinity());
  for (int key = 0; key < keys && !empty; ++key) {
    const Scalar weight = window_exp(window_score<Scalar>(p, pair, row, pixel, key) - most);
    const Scalar rounded = window_weight(weight, p.element);
    const long long from = window_pixel(p, pair.window, key);
    sum += weight;
    for (int i = 0; i < p.head_size; ++i) {
      values[i] += rounded * window_element<Scalar>(p, pair, 2, from, i);
    }
  }
  for (int i = 0; i < p.head_size; ++i) {
    window_write(p, pair, pixel, i, empty ? Scalar(0) : values[i] / sum);
  }
}

template <class Scalar>
__device__ inline void window_reference(const WindowAttentionJudgeParams& p) {
  const int rows = p.window_rows * p.window_columns, heads = p.call.call.heads;
  const RefU64 all = RefU64(p.call.call.batch) * heads * rows;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    const long long window = (long long)(i / rows / heads);
    const RefPair pair = {window / p.call.windows, (long long)(i / rows % heads),
                          int(window % p.call.windows)};
    window_row<Scalar>(p, pair, int(i % rows));
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(128) vitune_window_attention_reference(
    const __grid_constant__ vitune::WindowAttentionJudgeParams params) {
  vitune::window_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(128) vitune_window_attention_plain(
    const __grid_constant__ vitune::WindowAttentionJudgeParams params) {
  vitune::window_reference<float>(params);
}
