// generator/norm/tensors.cpp -- The tensors of a norm.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "generator/norm/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const NormProblem& p, bool given, ElementType type,
                  std::int64_t stride, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = given;
  spec.role = role;
  if (!given) return spec;
  spec.type = type;
  // Rows that all are the same one are stored once.
  spec.extents = {1, 1, stride == 0 ? 1 : p.rows, p.d};
  spec.strides = {0, 0, stride, 1};
  spec.axes = {"", "", "row", ""};
  spec.alignment = std::max<std::int64_t>(p.alignment, element_bytes(type));
  return spec;
}

TensorSpec parameter(std::string name, const NormProblem& p, bool given) {
  TensorSpec spec = matrix(std::move(name), p, given, p.parameters, p.d, Role::kInput);
  if (given) spec.extents[2] = 1;
  return spec;
}

TensorSpec statistic(std::string name, const NormProblem& p, bool given) {
  TensorSpec spec = matrix(std::move(name), p, given, ElementType::kFp32, 1, Role::kOutput);
  if (given) {
    spec.extents[3] = 1;
    spec.alignment = 4;
  }
  return spec;
}

// Each element is read by the thread that writes it, before: an output may take an input's place.
void let_replace(std::vector<TensorSpec>& specs, NormTensor output) {
  TensorSpec& written = specs[output];
  for (const NormTensor input : {kNormX, kNormResidual}) {
    const TensorSpec& read = specs[input];
    if (read.given && written.given && read.type == written.type &&
        read.strides == written.strides && read.extents == written.extents) {
      written.may_replace.push_back(input);
    }
  }
}

}  // namespace

std::vector<TensorSpec> norm_tensors(const NormProblem& p) {
  std::vector<TensorSpec> specs(kNormTensors);
  specs[kNormX] = matrix("x", p, true, p.type, p.x_row, Role::kInput);
  specs[kNormResidual] = matrix("residual", p, p.residual, p.type, p.residual_row, Role::kInput);
  specs[kNormWeight] = parameter("weight", p, p.weight);
  specs[kNormBias] = parameter("bias", p, p.bias);
  specs[kNormOut] = matrix("out", p, true, p.out, p.out_row, Role::kOutput);
  specs[kNormSum] = matrix("sum", p, p.sum, p.type, p.sum_row, Role::kOutput);
  specs[kNormSecond] = matrix("second", p, p.second.has_value(), p.second.value_or(p.out),
                              p.second_row, Role::kOutput);
  specs[kNormMean] = statistic("mean", p, p.statistics && !p.rms);
  specs[kNormRstd] = statistic("rstd", p, p.statistics);
  let_replace(specs, kNormOut);
  let_replace(specs, kNormSum);
  let_replace(specs, kNormSecond);
  return specs;
}

std::int64_t norm_vector(const NormProblem& p) {
  const std::vector<TensorSpec> tensors = norm_tensors(p);
  const auto fits = [&](std::int64_t vector) {
    for (int i = 0; i < kNormMean; ++i) {
      const TensorSpec& tensor = tensors[static_cast<std::size_t>(i)];
      if (!tensor.given) continue;
      const std::int64_t access = std::min<std::int64_t>(16, vector * element_bytes(tensor.type));
      if (p.alignment % access != 0 || tensor.strides[2] % vector != 0) return false;
    }
    return p.d % vector == 0;
  };
  std::int64_t vector = p.type == ElementType::kFp32 ? 4 : 8;
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

}  // namespace vitune
