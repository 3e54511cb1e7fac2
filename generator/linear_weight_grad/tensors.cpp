// generator/linear_weight_grad/tensors.cpp -- The tensors of a weight gradient, and how they may be
// accessed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "generator/linear_weight_grad/kernel_spec.h"
#include "generator/matrix_spec.h"

namespace vitune {
namespace {

TensorSpec matrix(std::string name, const LinearWeightGradProblem& p, Role role, ElementType type,
                  std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return matrix_spec(std::move(name), role, type, rows, columns, stride, p.alignment);
}

TensorSpec dense(std::string name, const LinearWeightGradProblem& p, bool given, Role role,
                 ElementType type, std::int64_t rows, std::int64_t columns) {
  if (!given) return absent_spec(std::move(name), role);
  return matrix(std::move(name), p, role, type, rows, columns, columns);
}

}  // namespace

std::vector<TensorSpec> weight_grad_tensors(const LinearWeightGradProblem& p) {
  const auto input = [&p](std::string name, bool given, ElementType type, std::int64_t rows,
                          std::int64_t columns) {
    return dense(std::move(name), p, given, Role::kInput, type, rows, columns);
  };
  const auto output = [&p](std::string name, bool given, WeightGradTensor before, std::int64_t rows,
                           std::int64_t columns) {
    TensorSpec spec = dense(std::move(name), p, given, Role::kOutput, p.out, rows, columns);
    // Each element is read by the thread that writes it, before.
    if (given && p.add) spec.may_replace.push_back(before);
    return spec;
  };
  std::vector<TensorSpec> specs(kWeightGradTensors);
  specs[kWeightGradDy] = matrix("dy", p, Role::kInput, p.type, p.m, p.n, p.dy_row);
  specs[kWeightGradX] = matrix("x", p, Role::kInput, p.type, p.m, p.k, p.x_row);
  specs[kWeightGradScale] = input("scale", p.scale, p.parameters, 1, p.n);
  specs[kWeightGradW] = input("w", p.scale, p.parameters, p.n, p.k);
  specs[kWeightGradB] = input("b", p.scale && p.bias, p.parameters, 1, p.n);
  specs[kWeightGradDwBefore] = input("dw_before", p.add, p.out, p.n, p.k);
  specs[kWeightGradDbBefore] = input("db_before", p.add && p.bias, p.out, 1, p.n);
  specs[kWeightGradDscaleBefore] = input("dscale_before", p.add && p.scale, p.out, 1, p.n);
  specs[kWeightGradDw] = output("dw", true, kWeightGradDwBefore, p.n, p.k);
  specs[kWeightGradDb] = output("db", p.bias, kWeightGradDbBefore, 1, p.n);
  specs[kWeightGradDscale] = output("dscale", p.scale, kWeightGradDscaleBefore, 1, p.n);
  return specs;
}

WeightGradAccesses weight_grad_accesses(const LinearWeightGradProblem& p) {
  const std::int64_t size = element_bytes(p.type);
  WeightGradAccesses widest;
  // Where there is one row its stride is of no account.
  widest.dy_bytes = common_power(16, {p.alignment, p.m > 1 ? p.dy_row * size : 16});
  widest.x_bytes = common_power(16, {p.alignment, p.m > 1 ? p.x_row * size : 16});
  std::int64_t largest = element_bytes(p.out);
  if (p.scale) largest = std::max(largest, element_bytes(p.parameters));
  widest.vector = common_power(8, {p.k});
  while (widest.vector > 1 && p.alignment % std::min<std::int64_t>(16, widest.vector * largest)) {
    widest.vector /= 2;
  }
  return widest;
}

}  // namespace vitune
