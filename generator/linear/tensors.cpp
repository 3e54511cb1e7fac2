// generator/linear/tensors.cpp -- The tensors of a linear layer, and how they may be accessed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "generator/linear/kernel_spec.h"
#include "generator/matrix_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const LinearProblem& p, Role role, ElementType type,
                  std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return matrix_spec(std::move(name), role, type, rows, columns, stride, p.alignment);
}

TensorSpec parameter(std::string name, const LinearProblem& p, bool given) {
  if (!given) return absent_spec(std::move(name), Role::kInput);
  return matrix(std::move(name), p, Role::kInput, p.parameters, 1, p.n, p.n);
}

// In fp32: of each row, or of each column.
TensorSpec statistic(std::string name, const LinearProblem& p, bool given, std::int64_t rows,
                     std::int64_t columns) {
  if (!given) return absent_spec(std::move(name), Role::kInput);
  return matrix(std::move(name), p, Role::kInput, ElementType::kFp32, rows, columns, columns);
}

TensorSpec out(const LinearProblem& p) {
  TensorSpec spec = matrix("out", p, Role::kOutput, p.out, p.m, p.n, p.out_row);
  if (p.out_period > 0) {
    spec.extents = {1, p.m / p.out_period, p.out_period, p.n};
    spec.strides = {0, p.out_spread * p.out_row, p.out_row, 1};
    spec.axes = {"", "run", "row", ""};
  }
  return spec;
}

}  // namespace

std::vector<TensorSpec> linear_tensors(const LinearProblem& p) {
  std::vector<TensorSpec> specs(kLinearTensors);
  specs[kLinearX] = matrix("x", p, Role::kInput, p.type, p.m, p.k, p.x_row);
  specs[kLinearW] = matrix("w", p, Role::kInput, p.type, p.w_rows(), p.w_columns(), p.w_row);
  specs[kLinearBias] = parameter("bias", p, p.bias);
  specs[kLinearScale] = parameter("scale", p, p.scale);
  specs[kLinearResidual] = p.residual ? matrix("residual", p, Role::kInput, p.out,
                                               p.residual_rows(), p.n, p.residual_row)
                                      : absent_spec("residual", Role::kInput);
  specs[kLinearOut] = out(p);
  specs[kLinearAux] = p.aux ? matrix("aux", p, Role::kOutput, p.type, p.m, p.n, p.aux_row)
                            : absent_spec("aux", Role::kOutput);
  const bool is_layer = p.norm == LinearNorm::kLayer;
  specs[kLinearMean] = statistic("mean", p, is_layer, p.m, 1);
  specs[kLinearRstd] = statistic("rstd", p, p.has_rstd(), p.m, 1);
  specs[kLinearWeightSums] = statistic("weight_sums", p, p.has_mean(), 1, p.n);
  // Two numbers for each block.
  const auto moments = [](std::int64_t columns, std::int64_t block) { return columns / block * 2; };
  const bool is_given = p.norm == LinearNorm::kMoments;
  specs[kLinearMoments] =
      statistic("moments", p, is_given, p.m, is_given ? moments(p.k, p.given_moments) : 0);
  specs[kLinearOutMoments] = absent_spec("out_moments", Role::kOutput);
  if (p.moments > 0) {
    const std::int64_t columns = moments(p.n, p.moments);
    specs[kLinearOutMoments] =
        matrix("out_moments", p, Role::kOutput, ElementType::kFp32, p.m, columns, columns);
    specs[kLinearOutMoments].rounded_before = p.out;
    const bool is_exact =
        p.activation == LinearActivation::kNone || p.activation == LinearActivation::kRelu;
    specs[kLinearOutMoments].exact_from_whole_numbers = is_exact && p.norm == LinearNorm::kNone;
  }
  specs[kLinearPre] = p.has_pre() ? matrix("pre", p, Role::kInput, p.type, p.m, p.n, p.pre_row)
                                  : absent_spec("pre", Role::kInput);
  specs[kLinearPost] = p.post ? matrix("post", p, Role::kOutput, p.type, p.m, p.n, p.post_row)
                              : absent_spec("post", Role::kOutput);
  const bool has_factor = p.factor_rows > 0;
  specs[kLinearFactor] =
      statistic("factor", p, has_factor, has_factor ? p.m / p.factor_rows : 0, 1);
  // Each element is read by the thread that writes it, before.
  const TensorSpec& residual = specs[kLinearResidual];
  TensorSpec& written = specs[kLinearOut];
  if (residual.given && residual.extents == written.extents &&
      residual.strides == written.strides) {
    written.may_replace.push_back(kLinearResidual);
  }
  return specs;
}

LinearAccesses linear_accesses(const LinearProblem& p) {
  const std::int64_t size = element_bytes(p.type);
  LinearAccesses widest;
  // Where there is one row its stride is of no account.
  widest.x_bytes = common_power(16, {p.alignment, p.m > 1 ? p.x_row * size : 16});
  widest.w_bytes = common_power(16, {p.alignment, p.w_rows() > 1 ? p.w_row * size : 16});
  const auto rows = [](bool given, std::int64_t row) { return given ? row : 8; };
  widest.vector = common_power(
      8, {p.n, rows(p.m > 1, p.out_row), rows(p.residual && p.residual_rows() > 1, p.residual_row),
          rows(p.aux && p.m > 1, p.aux_row), rows(p.has_pre() && p.m > 1, p.pre_row),
          rows(p.post && p.m > 1, p.post_row)});
  // The pointers' alignment allows most elements of the smallest type.
  std::int64_t largest = std::max(element_bytes(p.out), p.aux ? size : 0);
  if (p.bias || p.scale) largest = std::max(largest, element_bytes(p.parameters));
  if (p.has_mean()) largest = 4;
  while (widest.vector > 1 && p.alignment % std::min<std::int64_t>(16, widest.vector * largest)) {
    widest.vector /= 2;
  }
  return widest;
}

}  // namespace vitune
