// generator/window_attention/tensors.cpp -- The tensors of window attention.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec image_tensor(std::string name, const WindowAttentionProblem& p, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.type = p.type;
  spec.extents = {p.images, p.pixels(), p.heads, p.d};
  spec.strides = {p.pixels() * p.heads * p.d, p.heads * p.d, p.d, 1};
  spec.axes = {"image", "pixel", "head", ""};
  return spec;
}

// q, k or v: the first, second or third.
TensorSpec operand(std::string name, const WindowAttentionProblem& p, std::int64_t which) {
  TensorSpec spec = image_tensor(std::move(name), p, Role::kInput);
  spec.strides = {p.pixels() * p.pixel_stride(), p.pixel_stride(), p.head_stride(), 1};
  if (p.layout == WindowLayout::kSeparate) return spec;
  spec.shared = 0;
  spec.offset = which * (p.layout == WindowLayout::kPacked ? p.heads * p.d : p.d);
  return spec;
}

TensorSpec bias_tensor(const WindowAttentionProblem& p) {
  TensorSpec spec;
  spec.name = "bias";
  spec.given = p.bias.has_value();
  if (!spec.given) return spec;
  const std::int64_t keys = p.keys();
  spec.type = p.bias->type;
  spec.extents = {p.bias->windows, p.bias->heads, keys, keys};
  spec.strides = {p.bias->heads * keys * keys, keys * keys, keys, 1};
  spec.axes = {"window", "head", "query", "key"};
  return spec;
}

TensorSpec padding_tensor(const WindowAttentionProblem& p) {
  TensorSpec spec;
  spec.name = "padding";
  spec.given = p.padding;
  if (!spec.given) return spec;
  spec.type = p.type;
  spec.extents = {1, 3, p.heads, p.d};
  spec.strides = {0, p.heads * p.d, p.d, 1};
  return spec;
}

}  // namespace

std::vector<TensorSpec> window_attention_tensors(const WindowAttentionProblem& p) {
  std::vector<TensorSpec> specs(kWindowAttentionTensors);
  specs[kWindowQ] = operand("q", p, 0);
  specs[kWindowK] = operand("k", p, 1);
  specs[kWindowV] = operand("v", p, 2);
  specs[kWindowBias] = bias_tensor(p);
  specs[kWindowPadding] = padding_tensor(p);
  specs[kWindowOut] = image_tensor("out", p, Role::kOutput);
  return specs;
}

}  // namespace vitune
