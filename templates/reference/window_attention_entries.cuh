// templates/reference/window_attention_entries.cuh -- The judge of window attention, its yardstick.
//
// A thread has one query: it looks for the largest score, then adds up weights and weighted values.
// With double it is the judge; with float the yardstick: fp32 scores and sums, weights rounded to
// 16 bits before they meet v, a result rounded to 16 bits.
#pragma once

#include "reference/windows.cuh"

namespace vitune {

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
