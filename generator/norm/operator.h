// generator/norm/operator.h -- LayerNorm and RMSNorm as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/norm/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& norm();
// Throws Error(kFailure) for a problem of another operator.
const NormProblem& norm_of(const Problem& problem);

}  // namespace vitune
