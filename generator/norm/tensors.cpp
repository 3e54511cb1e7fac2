// generator/norm/tensors.cpp -- The tensors of a norm, and what its kernels are handed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "generator/matrix_spec.h"
#include "generator/norm/kernel_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const NormProblem& p, bool given, ElementType type,
                  std::int64_t stride, Role role) {
  if (!given) return absent_spec(std::move(name), role);
  // Rows that all are the same one are stored once.
  return matrix_spec(std::move(name), role, type, stride == 0 ? 1 : p.rows, p.d, stride,
                     std::max<std::int64_t>(p.alignment, element_bytes(type)));
}

TensorSpec parameter(std::string name, const NormProblem& p, bool given) {
  TensorSpec spec = matrix(std::move(name), p, given, p.parameters, p.d, Role::kInput);
  if (given) spec.extents[2] = 1;
  return spec;
}

TensorSpec statistic(std::string name, const NormProblem& p, bool given) {
  if (!given) return absent_spec(std::move(name), Role::kOutput);
  return matrix_spec(std::move(name), Role::kOutput, ElementType::kFp32, p.rows, 1, 1, 4);
}

constexpr PointerSlot kPointers[] = {
    {kNormX, offsetof(NormParams, x)},           {kNormResidual, offsetof(NormParams, residual)},
    {kNormWeight, offsetof(NormParams, weight)}, {kNormBias, offsetof(NormParams, bias)},
    {kNormOut, offsetof(NormParams, out)},       {kNormSum, offsetof(NormParams, sum)},
    {kNormSecond, offsetof(NormParams, second)}, {kNormMean, offsetof(NormParams, mean)},
    {kNormRstd, offsetof(NormParams, rstd)},
};

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
  for (const int output : {kNormOut, kNormSum, kNormSecond}) {
    let_replace(specs, output, {kNormX, kNormResidual});
  }
  return specs;
}

NormParams norm_params(const NormProblem& p) {
  NormParams params = {};
  params.x_row = p.x_row;
  params.residual_row = p.residual_row;
  params.out_row = p.out_row;
  params.sum_row = p.sum_row;
  params.second_row = p.second_row;
  params.rows = p.rows;
  params.eps = static_cast<float>(p.eps);
  return params;
}

std::vector<PointerSlot> norm_pointers() { return {std::begin(kPointers), std::end(kPointers)}; }

std::int64_t norm_vector(const NormProblem& p) {
  return row_vector(norm_tensors(p), p.d, p.alignment, p.type == ElementType::kFp32 ? 4 : 8);
}

}  // namespace vitune
