// generator/norm_backward/operator.h -- Gradients of LayerNorm and RMSNorm as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/norm_backward/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& norm_backward();
// Throws Error(kFailure) for a problem of another operator.
const NormBackwardProblem& norm_backward_of(const Problem& problem);

}  // namespace vitune
