// generator/window_attention_backward/operator.h -- Gradients of attention in the windows of images
// as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/operator.h"
#include "generator/window_attention_backward/problem.h"

namespace vitune {

const Operator& window_attention_backward();
// Throws Error(kFailure) for a problem of another operator.
const WindowAttentionBackwardProblem& window_attention_backward_of(const Problem& problem);

}  // namespace vitune
