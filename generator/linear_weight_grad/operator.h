// generator/linear_weight_grad/operator.h -- Weight gradients of linear layers as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/linear_weight_grad/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& linear_weight_grad();
// Throws Error(kFailure) for a problem of another operator.
const LinearWeightGradProblem& linear_weight_grad_of(const Problem& problem);

}  // namespace vitune
