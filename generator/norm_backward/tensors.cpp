// generator/norm_backward/tensors.cpp -- The tensors of a norm's gradients, how they may be
// accessed, and where their pointers go.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "generator/matrix_spec.h"
#include "generator/norm_backward/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const NormBackwardProblem& p, bool given, ElementType type,
                  std::int64_t stride, Role role) {
  if (!given) return absent_spec(std::move(name), role);
  // Rows that all are the same one are stored once.
  return matrix_spec(std::move(name), role, type, stride == 0 ? 1 : p.rows, p.d, stride,
                     std::max<std::int64_t>(p.alignment, element_bytes(type)));
}

TensorSpec parameter(std::string name, const NormBackwardProblem& p, bool given, Role role) {
  TensorSpec spec = matrix(std::move(name), p, given, p.parameters, p.d, role);
  if (given) spec.extents[2] = 1;
  return spec;
}

// A number in fp32 for so many rows each.
TensorSpec number(std::string name, const NormBackwardProblem& p, bool given, std::int64_t rows) {
  if (!given) return absent_spec(std::move(name), Role::kInput);
  return matrix_spec(std::move(name), Role::kInput, ElementType::kFp32, p.rows / rows, 1, 1, 4);
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
  for (const int output : {kNormBackwardDx, kNormBackwardSecond}) {
    let_replace(specs, output, {kNormBackwardDy, kNormBackwardX, kNormBackwardResidual});
  }
  return specs;
}

std::int64_t norm_backward_vector(const NormBackwardProblem& p) {
  const bool is_fp32 = p.type == ElementType::kFp32 && p.stream == ElementType::kFp32;
  return row_vector(norm_backward_tensors(p), p.d, p.alignment, is_fp32 ? 4 : 8);
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
