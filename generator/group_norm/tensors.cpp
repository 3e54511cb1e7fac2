// generator/group_norm/tensors.cpp -- The tensors of a group norm.
// SPDX-License-Identifier: Apache-2.0
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec image_tensor(std::string name, const GroupNormProblem& p, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.type = p.type;
  const std::int64_t rows = p.nhwc ? p.positions : p.channels;
  const std::int64_t row = p.nhwc ? p.channels : p.positions;
  spec.extents = {1, p.images, rows, row};
  spec.strides = {0, rows * row, row, 1};
  spec.axes = {"", "image", p.nhwc ? "position" : "channel", ""};
  spec.alignment = p.alignment;
  return spec;
}

TensorSpec parameter(std::string name, const GroupNormProblem& p, bool given) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = given;
  if (!given) return spec;
  spec.type = p.parameters;
  spec.extents = {1, 1, 1, p.channels};
  spec.strides = {0, 0, 0, 1};
  spec.alignment = p.alignment;
  return spec;
}

}  // namespace

std::vector<TensorSpec> group_norm_tensors(const GroupNormProblem& p) {
  std::vector<TensorSpec> specs(kGroupNormTensors);
  specs[kGroupNormX] = image_tensor("x", p, Role::kInput);
  specs[kGroupNormWeight] = parameter("weight", p, p.weight);
  specs[kGroupNormBias] = parameter("bias", p, p.bias);
  specs[kGroupNormOut] = image_tensor("out", p, Role::kOutput);
  // Each element is read by the thread that writes it, before, and by none after.
  specs[kGroupNormOut].may_replace.push_back(kGroupNormX);
  return specs;
}

}  // namespace vitune
