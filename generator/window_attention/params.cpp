// generator/window_attention/params.cpp -- What the kernels of window attention are handed.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "generator/attention/kernel_spec.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(WindowAttentionParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kWindowQ, at_call(offsetof(AttentionParams, q))},
    {kWindowK, at_call(offsetof(AttentionParams, k))},
    {kWindowV, at_call(offsetof(AttentionParams, v))},
    {kWindowBias, at_call(offsetof(AttentionParams, bias))},
    {kWindowPadding, offsetof(WindowAttentionParams, padding)},
    {kWindowOut, at_call(offsetof(AttentionParams, o))},
};

AttentionView view_of(const TensorSpec& tensor) {
  return {tensor.strides[0], tensor.strides[2], tensor.strides[1]};
}

AttentionParams scores_params(const WindowAttentionProblem& p) {
  const std::vector<TensorSpec> tensors = window_attention_tensors(p);
  AttentionParams params{};
  params.q_view = view_of(tensors[kWindowQ]);
  params.k_view = view_of(tensors[kWindowK]);
  params.v_view = view_of(tensors[kWindowV]);
  params.o_view = view_of(tensors[kWindowOut]);
  params.bias_view = {0, 0, 0, 0, 1};
  params.mask_view = {0, 0, 0, 0, 1};
  if (p.bias) {
    const TensorSpec::Dims& strides = tensors[kWindowBias].strides;
    params.bias_view = {p.bias->windows == 1 ? 0 : strides[0], p.bias->heads == 1 ? 0 : strides[1],
                        strides[2], strides[3], static_cast<int>(p.bias->windows)};
  }
  params.batch = static_cast<int>(p.images * p.windows());
  params.heads = static_cast<int>(p.heads);
  params.heads_per_kv = 1;
  params.queries = static_cast<int>(p.keys());
  params.keys = static_cast<int>(p.keys());
  params.scale = static_cast<float>(p.scale);
  params.by_heads = attention_divisor(p.heads);
  params.by_bias_batches = attention_divisor(params.bias_view.batches);
  return params;
}

}  // namespace

std::vector<PointerSlot> window_attention_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

WindowAttentionParams window_attention_params(const WindowAttentionProblem& p) {
  WindowAttentionParams params{};
  params.call = scores_params(p);
  params.rows = static_cast<int>(p.rows);
  params.columns = static_cast<int>(p.columns);
  params.windows = static_cast<int>(p.windows());
  params.row_step = static_cast<int>(p.grid ? p.rows / p.window_rows : 1);
  params.column_step = static_cast<int>(p.grid ? p.columns / p.window_columns : 1);
  params.shift_rows = static_cast<int>(p.shift_rows);
  params.shift_columns = static_cast<int>(p.shift_columns);
  const auto rolled = [&](std::int64_t extent, std::int64_t windows, std::int64_t window) {
    return static_cast<int>(p.pads_first ? windows * window : extent);
  };
  params.roll_rows = rolled(p.rows, p.windows_down(), p.window_rows);
  params.roll_columns = rolled(p.columns, p.windows_across(), p.window_columns);
  params.by_windows = attention_divisor(p.windows());
  params.by_window_columns = attention_divisor(p.windows_across());
  return params;
}

}  // namespace vitune
