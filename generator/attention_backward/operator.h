// generator/attention_backward/operator.h -- Gradients of attention as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/attention_backward/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& attention_backward();
// Throws Error(kFailure) for a problem of another operator.
const AttentionBackwardProblem& attention_backward_of(const Problem& problem);

}  // namespace vitune
