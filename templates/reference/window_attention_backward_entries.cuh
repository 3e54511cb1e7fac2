// templates/reference/window_attention_backward_entries.cuh -- The judge of window attention's
// gradients, and its yardstick.
//
// Four kernels: a thread of the first has one query row, its softmax and its dq; of the second one
// key, its dk and dv; of the third one entry of dbias; of the last one of dtable or dpadding. With
// double it is the judge; with float the yardstick: fp32 sums, P and dS rounded to 16 bits before
// products, each result rounded once.
#pragma once

#include "reference/windows.cuh"
#include "window_attention_backward/params.cuh"
// After what it is made of.
#include "reference/window_attention_backward_judge_params.cuh"

namespace vitune {

// With forward's parameters as its own judge has them, whose answer is null.
struct WindowBackwardJudge : WindowAttentionBackwardJudgeParams {
  WindowAttentionJudgeParams forward;

  __device__ explicit WindowBackwardJudge(const WindowAttentionBackwardJudgeParams& p)
      : WindowAttentionBackwardJudgeParams(p), forward{p.call.forward, p.scale,
                                                       nullptr,        p.head_size,
                                                       p.window_rows,  p.window_columns,
                                                       p.grid,         p.pads_first,
                                                       p.element,      p.bias} {}
};

__device__ inline int ref_keys(const WindowBackwardJudge& p) {
  return p.forward.window_rows * p.forward.window_columns;
}
// Pairs are numbered heads first.
__device__ inline RefPair ref_pair(const WindowBackwardJudge& p, long long pair) {
  const int heads = p.forward.call.call.heads, windows = p.forward.call.windows;
  return {pair / heads / windows, pair % heads, int(pair / heads % windows)};
}

// One result: the answer in fp32, or what the call's output has.
__device__ inline void ref_write(float* answer, float*, long long at, double value) {
  answer[at] = float(value);
}
__device__ inline void ref_write(float*, float* output, long long at, float value) {
  output[at] = value;
}
__device__ inline void ref_write_element(const WindowBackwardJudge& p, float* answer, void*,
                                         const RefPair& pair, long long pixel, int at,
                                         double value) {
  const WindowAttentionParams& call = p.forward.call;
  const long long pixels = (long long)(call.rows) * call.columns;
  answer[((pair.image * pixels + pixel) * call.call.heads + pair.head) * p.forward.head_size + at] =
      float(value);
}
__device__ inline void ref_write_element(const WindowBackwardJudge& p, float*, void* output,
                                         const RefPair& pair, long long pixel, int at,
                                         float value) {
  const AttentionView& view = p.forward.call.call.q_view;
  static_cast<RefU16*>(
      output)[pair.image * view.batch + pixel * view.row + pair.head * view.head + at] =
      bits16(value, p.forward.element);
}

template <class Scalar>
__device__ inline Scalar ref_dout(const WindowBackwardJudge& p, const RefPair& pair,
                                  long long pixel, int at) {
  const AttentionView& view = p.forward.call.call.o_view;
  const long long place = pair.image * view.batch + pixel * view.row + pair.head * view.head + at;
  return Scalar(value16(static_cast<const RefU16*>(p.call.dout)[place], p.forward.element));
}

// The gradient of a weight: dO of the row times V of the key.
template <class Scalar>
__device__ inline Scalar ref_weight_gradient(const WindowBackwardJudge& p, const RefPair& pair,
                                             long long pixel, int key) {
  const long long from = window_pixel(p.forward, pair.window, key);
  Scalar sum = 0;
  for (int i = 0; i < p.forward.head_size; ++i) {
    sum +=
        ref_dout<Scalar>(p, pair, pixel, i) * window_element<Scalar>(p.forward, pair, 2, from, i);
  }
  return sum;
}

template <class Scalar>
struct RefScore {
  Scalar weight, gradient;  // P and dS
};

// The score of a row that is not padding, from the numbers that the first kernel has stored.
template <class Scalar>
__device__ inline RefScore<Scalar> ref_score(const WindowBackwardJudge& p, const RefPair& pair,
                                             long long index, int row, long long pixel, int key) {
  const Scalar* const known = static_cast<const Scalar*>(p.rows) + 3 * (index * ref_keys(p) + row);
  if (known[1] == Scalar(0)) return {0, 0};
  const Scalar score = window_score<Scalar>(p.forward, pair, row, pixel, key);
  const Scalar weight = window_exp(score - known[0]) / known[1];
  return {weight, weight * (ref_weight_gradient<Scalar>(p, pair, pixel, key) - known[2])};
}

template <class Scalar>
__device__ inline void ref_row_numbers(const WindowBackwardJudge& p, const RefPair& pair, int row,
                                       long long pixel, Scalar* numbers) {
  const int keys = ref_keys(p);
  Scalar most = Scalar(reference_minus_infinity()), sum = 0, product = 0;
  for (int key = 0; key < keys; ++key) {
    const Scalar score = window_score<Scalar>(p.forward, pair, row, pixel, key);
    if (score > most) most = score;
  }
  const bool empty = most == Scalar(reference_minus_infinity());
  for (int key = 0; key < keys && !empty; ++key) {
    const Scalar score = window_score<Scalar>(p.forward, pair, row, pixel, key);
    const Scalar weight = window_exp(score - most);
    sum += weight;
    product += weight * ref_weight_gradient<Scalar>(p, pair, pixel, key);
  }
  numbers[0] = most;
  numbers[1] = sum;
  numbers[2] = empty ? Scalar(0) : product / sum;
}

template <class Scalar>
__device__ inline void ref_window_rows(const WindowBackwardJudge& p) {
  const int keys = ref_keys(p), d = p.forward.head_size;
  const RefU64 all = RefU64(p.forward.call.call.batch) * p.forward.call.call.heads * keys;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    const long long index = (long long)(i / keys);
    const int row = int(i % keys);
    const RefPair pair = ref_pair(p, index);
    const long long pixel = window_pixel(p.forward, pair.window, row);
    if (pixel < 0) continue;
    ref_row_numbers<Scalar>(p, pair, row, pixel, static_cast<Scalar*>(p.rows) + 3 * i);
    Scalar dq[kWindowMaxHead];
    for (int x = 0; x < d; ++x) dq[x] = 0;
    for (int key = 0; key < keys; ++key) {
      const auto score = ref_score<Scalar>(p, pair, index, row, pixel, key);
      const Scalar rounded = window_weight(score.gradient, p.forward.element);
      const long long from = window_pixel(p.forward, pair.window, key);
      for (int x = 0; x < d; ++x) {
        dq[x] += rounded * window_element<Scalar>(p.forward, pair, 1, from, x);
      }
    }
    for (int x = 0; x < d; ++x) {
      ref_write_element(p, p.dq, p.call.dq, pair, pixel, x, dq[x] * Scalar(p.forward.scale));
    }
  }
}

template <class Scalar>
__device__ inline void ref_window_keys(const WindowBackwardJudge& p) {
  const int keys = ref_keys(p), d = p.forward.head_size;
  const RefU64 all = RefU64(p.forward.call.call.batch) * p.forward.call.call.heads * keys;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    const long long index = (long long)(i / keys);
    const int key = int(i % keys);
    const RefPair pair = ref_pair(p, index);
    Scalar dk[kWindowMaxHead], dv[kWindowMaxHead];
    for (int x = 0; x < d; ++x) dk[x] = dv[x] = 0;
    for (int row = 0; row < keys; ++row) {
      const long long from = window_pixel(p.forward, pair.window, row);
      if (from < 0) continue;  // its dO is 0
      const auto score = ref_score<Scalar>(p, pair, index, row, from, key);
      const Scalar weight = window_weight(score.weight, p.forward.element);
      const Scalar gradient = window_weight(score.gradient, p.forward.element);
      for (int x = 0; x < d; ++x) {
        dv[x] += weight * ref_dout<Scalar>(p, pair, from, x);
        dk[x] += gradient * window_element<Scalar>(p.forward, pair, 0, from, x);
      }
    }
    const long long pixel = window_pixel(p.forward, pair.window, key);
    for (int x = 0; x < d; ++x) {
      dk[x] *= Scalar(p.forward.scale);
      if (pixel >= 0) {
        ref_write_element(p, p.dk, p.call.dk, pair, pixel, x, dk[x]);
        ref_write_element(p, p.dv, p.call.dv, pair, pixel, x, dv[x]);
      } else if (p.call.dpadding != nullptr || p.dpadding != nullptr) {
        Scalar* const to = static_cast<Scalar*>(p.padding) + 2 * d * i + x;
        to[0] = dk[x];
        to[d] = dv[x];
      }
    }
  }
}

template <class Scalar>
__device__ inline void ref_window_bias(const WindowBackwardJudge& p) {
  const WindowAttentionBackwardParams& call = p.call;
  const int keys = ref_keys(p), heads = p.forward.call.call.heads;
  const int sharing = heads / call.dbias_heads;
  const RefU64 all = RefU64(call.dbias_windows) * call.dbias_heads * keys * keys;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    const int key = int(i % keys), row = int(i / keys % keys);
    const long long head = (long long)(i / keys / keys % call.dbias_heads);
    const long long window = (long long)(i / keys / keys / call.dbias_heads);
    Scalar sum = 0;
    for (long long n = window; n < p.forward.call.call.batch; n += call.dbias_windows) {
      for (int j = 0; j < sharing; ++j) {
        const long long index = n * heads + head + j;
        const RefPair pair = ref_pair(p, index);
        const long long pixel = window_pixel(p.forward, pair.window, row);
        if (pixel >= 0) sum += ref_score<Scalar>(p, pair, index, row, pixel, key).gradient;
      }
    }
    static_cast<Scalar*>(p.sums)[i] = sum;
    if (call.table_rows == 0) ref_write(p.dbias, call.dbias, (long long)(i), sum);
  }
}

template <class Scalar>
__device__ inline void ref_window_table(const WindowBackwardJudge& p) {
  const WindowAttentionBackwardParams& call = p.call;
  const int keys = ref_keys(p), heads = call.dbias_heads;
  const RefU64 all = RefU64(call.table_rows) * heads;
  for (RefU64 i = global_thread(); i < all; i += global_threads()) {
    const Scalar* const sums =
        static_cast<const Scalar*>(p.sums) + (long long)(i % heads) * keys * keys;
    Scalar sum = 0;
    for (int at = 0; at < keys * keys; ++at) {
      if (call.index[at] == int(i / heads)) sum += sums[at];
    }
    ref_write(p.dtable, call.dtable, (long long)(i), sum);
  }
}

template <class Scalar>
__device__ inline void ref_window_padding(const WindowBackwardJudge& p) {
  const int keys = ref_keys(p), d = p.forward.head_size, heads = p.forward.call.call.heads;
  for (RefU64 i = global_thread(); i < RefU64(3) * heads * d; i += global_threads()) {
    const int x = int(i % d), which = int(i / d / heads);
    const long long head = (long long)(i / d % heads);
    Scalar sum = 0;
    for (long long n = 0; which > 0 && n < p.forward.call.call.batch; ++n) {
      for (int key = 0; key < keys; ++key) {
        if (window_pixel(p.forward, int(n % p.forward.call.windows), key) >= 0) continue;
        const long long place = (n * heads + head) * keys + key;
        sum += static_cast<const Scalar*>(p.padding)[(2 * place + which - 1) * d + x];
      }
    }
    ref_write(p.dpadding, p.call.dpadding, (long long)(i), sum);
  }
}

template <class Scalar>
__device__ inline void ref_window_sums(const WindowBackwardJudge& p) {
  if (p.call.table_rows != 0) ref_window_table<Scalar>(p);
  if (p.call.dpadding != nullptr || p.dpadding != nullptr) ref_window_padding<Scalar>(p);
}

}  // namespace vitune

#define VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRY(kernel, scalar, name)                    \
  extern "C" __global__ void __launch_bounds__(128)                                     \
      name(const __grid_constant__ vitune::WindowAttentionBackwardJudgeParams params) { \
    vitune::kernel<scalar>(vitune::WindowBackwardJudge(params));                        \
  }
#define VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES(kernel, name)                              \
  VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRY(kernel, double,                                    \
                                         vitune_window_attention_backward_reference_##name) \
  VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRY(kernel, float,                                     \
                                         vitune_window_attention_backward_plain_##name)
VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES(ref_window_rows, rows)
VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES(ref_window_keys, keys)
VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES(ref_window_bias, bias)
VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES(ref_window_sums, sums)
#undef VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRIES
#undef VITUNE_WINDOW_ATTENTION_BACKWARD_ENTRY
