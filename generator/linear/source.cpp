// generator/linear/source.cpp -- What the sources of all families say of a linear layer.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {

std::string linear_product_text(const LinearProblem& p) {
  const LinearAccesses accesses = linear_accesses(p);
  const LinearNorm norm = p.has_mean() ? LinearNorm::kLayer : p.norm;
  return config_number("kElement", judge_type(p.type)) +
         config_number("kOutput", judge_type(p.out)) +
         config_number("kParameters", judge_type(p.parameters)) +
         config_number("kActivation", static_cast<int>(p.activation)) +
         config_number("kNorm", static_cast<int>(norm)) + config_flag("kBias", p.bias) +
         config_flag("kScale", p.scale) + config_flag("kResidual", p.residual || p.has_pre()) +
         config_flag("kAux", p.aux || p.post) + config_flag("kPeriodic", p.is_periodic()) +
         config_flag("kPeriodicResidual", p.residual_period > 0) +
         config_flag("kTransposed", p.transposed) + config_number("kCopyX", accesses.x_bytes) +
         config_number("kCopyW", accesses.w_bytes) + config_number("kVector", accesses.vector);
}

std::string linear_facts_text(const LinearProblem& p) {
  return linear_product_text(p) + config_number("kDerivative", static_cast<int>(p.derivative)) +
         config_flag("kFactor", p.factor_rows > 0);
}

}  // namespace vitune
