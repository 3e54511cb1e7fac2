// generator/linear/operator.h -- Linear layers as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/linear/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& linear();
// Throws Error(kFailure) for a problem of another operator.
const LinearProblem& linear_of(const Problem& problem);

}  // namespace vitune
