// generator/linear/source.cpp -- What the sources of all families say of a linear layer.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {

std::string linear_number(std::string_view name, std::int64_t value) {
  return formatted("  static constexpr int {} = {};\n", name, value);
}

std::string linear_flag(std::string_view name, bool value) {
  return formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
}

std::string linear_product_text(const LinearProblem& p) {
  const LinearAccesses accesses = linear_accesses(p);
  const LinearNorm norm = p.has_mean() ? LinearNorm::kLayer : p.norm;
  return linear_number("kElement", judge_type(p.type)) +
         linear_number("kOutput", judge_type(p.out)) +
         linear_number("kParameters", judge_type(p.parameters)) +
         linear_number("kActivation", static_cast<int>(p.activation)) +
         linear_number("kNorm", static_cast<int>(norm)) + linear_flag("kBias", p.bias) +
         linear_flag("kScale", p.scale) + linear_flag("kResidual", p.residual || p.has_pre()) +
         linear_flag("kAux", p.aux || p.post) + linear_flag("kPeriodic", p.is_periodic()) +
         linear_flag("kPeriodicResidual", p.residual_period > 0) +
         linear_flag("kTransposed", p.transposed) + linear_number("kCopyX", accesses.x_bytes) +
         linear_number("kCopyW", accesses.w_bytes) + linear_number("kVector", accesses.vector);
}

std::string linear_facts_text(const LinearProblem& p) {
  return linear_product_text(p) + linear_number("kDerivative", static_cast<int>(p.derivative)) +
         linear_flag("kFactor", p.factor_rows > 0);
}

}  // namespace vitune
