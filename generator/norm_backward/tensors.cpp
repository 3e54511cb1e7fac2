// generator/norm_backward/tensors.cpp -- The tensors of a norm's gradients, how they may be
// accessed, and where their pointers go.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "generator/norm_backward/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const NormBackwardProblem& p, bool given, ElementType type,
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

TensorSpec parameter(std::string name, const NormBackwardProblem& p, bool given, Role role) {
  TensorSpec spec = matrix(std::move(name), p, given, p.parameters, p.d, role);
  if (given) spec.extents[2] = 1;
  return spec;
}

// A number in fp32 for so many rows each.
TensorSpec number(std::string name, const NormBackwardProblem& p, bool given, std::int64_t rows) {
  TensorSpec spec = matrix(std::move(name), p, given, ElementType::kFp32, 1, Role::kInput);
  if (!given) return spec;
  spec.extents = {1, 1, p.rows / rows, 1};
  spec.alignment = 4;
  return spec;
}

// Each element is read by the thread that writes it, before: an output may take an input's place.
void let_replace(std::vector<TensorSpec>& specs, NormBackwardTensor output) {
  TensorSpec& written = specs[output];
  for (const NormBackwardTensor input : {kNormBackwardDy, kNormBackwardX, kNormBackwardResidual}) {
    const TensorSpec& read = specs[input];
    if (read.given && written.given && read.type == written.type &&
        read.strides == written.strides && read.extents == written.extents) {
      written.may_replace.push_back(input);
    }
  }
}

constexpr PointerSlot kPointers[] = {
    {kNormBackwardDy, offsetof(NormBackwardParams, dy)},
    {kNormBackwardX, offsetof(NormBackwardParams, x)},
    {kNormBackwardMean, offsetof(NormBackwardParams, mean)},
    {kNormBackwardRstd, offsetof(NormBackwardParams, rstd)},
    {kNormBackwardWeight, offsetof(NormBackwardParams, weight)},
    {kNormBackwardResidual, offsetof(NormBackwardParams, residual)},
    {kNormBackwardFactor, offsetof(NormBackwardParams, factor)},
    {kNormBackwardDx, offsetof(NormBackwardParams, dx)},
    {kNormBackwardSecond, offsetof(NormBackwardParams, second)},
    {kNormBackwardDweight, offsetof(NormBackwardParams, dweight)},
    {kNormBackwardDbias, offsetof(NormBackwardParams, dbias)},
};

}  // namespace

std::vector<TensorSpec> norm_backward_tensors(const NormBackwardProblem& p) {
  std::vector<TensorSpec> specs(kNormBackwardTensors);
  specs[kNormBackwardDy] = matrix("dy", p, true, p.type, p.dy_row, Role::kInput);
  specs[kNormBackwardX] = matrix("x", p, true, p.stream, p.x_row, Role::kInput);
  specs[kNormBackwardMean] = number("mean", p, p.statistics && !p.rms, 1);
  specs[kNormBackwardRstd] = number("rstd", p, p.statistics, 1);
  specs[kNormBackwardWeight] = parameter("weight", p, p.weight, Role::kInput);
  specs[kNormBackwardResidual] =
      matrix("residual", p, p.residual, p.stream, p.residual_row, Role::kInput);
  specs[kNormBackwardFactor] =
      number("factor", p, p.factor_rows > 0, std::max<std::int64_t>(p.factor_rows, 1));
  specs[kNormBackwardDx] = matrix("dx", p, true, p.stream, p.dx_row, Role::kOutput);
  specs[kNormBackwardSecond] = matrix("second", p, p.second.has_value(),
                                      p.second.value_or(p.stream), p.second_row, Role::kOutput);
  specs[kNormBackwardDweight] = parameter("dweight", p, p.has_dweight(), Role::kOutput);
  specs[kNormBackwardDbias] = parameter("dbias", p, p.bias, Role::kOutput);
  let_replace(specs, kNormBackwardDx);
  let_replace(specs, kNormBackwardSecond);
  return specs;
}

std::int64_t norm_backward_vector(const NormBackwardProblem& p) {
  const std::vector<TensorSpec> tensors = norm_backward_tensors(p);
  const auto fits = [&](std::int64_t vector) {
    for (const NormBackwardTensor i :
         {kNormBackwardDy, kNormBackwardX, kNormBackwardWeight, kNormBackwardResidual,
          kNormBackwardDx, kNormBackwardSecond}) {
      const TensorSpec& tensor = tensors[i];
      if (!tensor.given) continue;
      const std::int64_t access = std::min<std::int64_t>(16, vector * element_bytes(tensor.type));
      if (p.alignment % access != 0 || tensor.strides[2] % vector != 0) return false;
    }
    return p.d % vector == 0;
  };
  const bool is_fp32 = p.type == ElementType::kFp32 && p.stream == ElementType::kFp32;
  std::int64_t vector = is_fp32 ? 4 : 8;
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

NormBackwardParams norm_backward_params(const NormBackwardProblem& p) {
  NormBackwardParams params = {};
  params.dy_row = p.dy_row;
  params.x_row = p.x_row;
  params.residual_row = p.residual_row;
  params.dx_row = p.dx_row;
  params.second_row = p.second_row;
  params.rows = static_cast<int>(p.rows);
  params.factor_rows = static_cast<int>(p.factor_rows);
  params.eps = static_cast<float>(p.eps);
  return params;
}

std::vector<PointerSlot> norm_backward_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

}  // namespace vitune
