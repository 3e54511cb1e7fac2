// generator/group_norm/operator.h -- GroupNorm with an activation as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/group_norm/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& group_norm();
// Throws Error(kFailure) for a problem of another operator.
const GroupNormProblem& group_norm_of(const Problem& problem);

}  // namespace vitune
