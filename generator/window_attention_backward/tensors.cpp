// generator/window_attention_backward/tensors.cpp -- The tensors of window attention's gradients,
// where their pointers go, and what kernels know of them.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <iterator>
#include <utility>

#include "generator/window_attention_backward/kernel_spec.h"

namespace vitune {
namespace {

using Params = WindowAttentionBackwardParams;

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(Params, forward) + offsetof(WindowAttentionParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kWindowBackwardQ, at_call(offsetof(AttentionParams, q))},
    {kWindowBackwardK, at_call(offsetof(AttentionParams, k))},
    {kWindowBackwardV, at_call(offsetof(AttentionParams, v))},
    {kWindowBackwardBias, at_call(offsetof(AttentionParams, bias))},
    {kWindowBackwardPadding, offsetof(Params, forward) + offsetof(WindowAttentionParams, padding)},
    {kWindowBackwardIndex, offsetof(Params, index)},
    {kWindowBackwardDout, offsetof(Params, dout)},
    {kWindowBackwardDq, offsetof(Params, dq)},
    {kWindowBackwardDk, offsetof(Params, dk)},
    {kWindowBackwardDv, offsetof(Params, dv)},
    {kWindowBackwardDbias, offsetof(Params, dbias)},
    {kWindowBackwardDtable, offsetof(Params, dtable)},
    {kWindowBackwardDpadding, offsetof(Params, dpadding)},
};

// Views of one allocation are views of another one than q, k and v.
TensorSpec gradient(TensorSpec of, std::string name) {
  of.name = std::move(name);
  of.role = Role::kOutput;
  if (of.shared >= 0) of.shared = 1;
  return of;
}

TensorSpec dense(std::string name, ElementType type, const TensorSpec::Dims& extents, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.type = type;
  spec.extents = extents;
  spec.strides = {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
  return spec;
}

TensorSpec absent(std::string name, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = false;
  spec.role = role;
  return spec;
}

TensorSpec bias_gradient(const WindowAttentionBackwardProblem& p) {
  if (p.dbias_windows == 0) return absent("dbias", Role::kOutput);
  const std::int64_t keys = p.forward.keys();
  TensorSpec spec = dense("dbias", ElementType::kFp32,
                          {p.dbias_windows, p.forward.bias->heads, keys, keys}, Role::kOutput);
  spec.axes = {"window", "head", "query", "key"};
  return spec;
}

}  // namespace

std::vector<TensorSpec> window_attention_backward_tensors(const WindowAttentionBackwardProblem& p) {
  const WindowAttentionProblem& f = p.forward;
  const std::vector<TensorSpec> forward = window_attention_tensors(f);
  std::vector<TensorSpec> specs(kWindowAttentionBackwardTensors);
  for (const int tensor : {kWindowQ, kWindowK, kWindowV, kWindowBias, kWindowPadding}) {
    specs[static_cast<std::size_t>(tensor)] = forward[static_cast<std::size_t>(tensor)];
  }
  const bool has_table = p.table_rows != 0;
  specs[kWindowBackwardIndex] =
      has_table ? dense("index", ElementType::kI32, {1, 1, f.keys(), f.keys()}, Role::kInput)
                : absent("index", Role::kInput);
  specs[kWindowBackwardDout] = forward[kWindowOut];
  specs[kWindowBackwardDout].name = "dout";
  specs[kWindowBackwardDout].role = Role::kInput;
  specs[kWindowBackwardDq] = gradient(forward[kWindowQ], "dq");
  specs[kWindowBackwardDk] = gradient(forward[kWindowK], "dk");
  specs[kWindowBackwardDv] = gradient(forward[kWindowV], "dv");
  specs[kWindowBackwardDbias] = bias_gradient(p);
  specs[kWindowBackwardDtable] =
      has_table
          ? dense("dtable", ElementType::kFp32, {1, 1, p.table_rows, f.bias->heads}, Role::kOutput)
          : absent("dtable", Role::kOutput);
  specs[kWindowBackwardDpadding] =
      p.has_dpadding() ? dense("dpadding", ElementType::kFp32, {1, 3, f.heads, f.d}, Role::kOutput)
                       : absent("dpadding", Role::kOutput);
  return specs;
}

WindowAttentionBackwardParams window_attention_backward_params(
    const WindowAttentionBackwardProblem& p, std::int64_t parts) {
  WindowAttentionBackwardParams params{};
  params.forward = window_attention_params(p.forward);
  params.entries = static_cast<int>(p.entries());
  params.instances = static_cast<int>(p.instances());
  params.parts = static_cast<int>(parts);
  if (!p.sums_bias()) return params;
  params.dbias_windows = static_cast<int>(p.summed_windows());
  params.dbias_heads = static_cast<int>(p.forward.bias->heads);
  params.table_rows = static_cast<int>(p.table_rows);
  return params;
}

std::vector<PointerSlot> window_attention_backward_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

}  // namespace vitune
