// generator/window_attention/operator.h -- Attention in the windows of images as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/operator.h"
#include "generator/window_attention/problem.h"

namespace vitune {

const Operator& window_attention();
// Throws Error(kFailure) for a problem of another operator.
const WindowAttentionProblem& window_attention_of(const Problem& problem);

}  // namespace vitune
