// generator/packed_attention/operator.h -- Attention of packed sequences as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/operator.h"
#include "generator/packed_attention/problem.h"

namespace vitune {

const Operator& packed_attention();
// Throws Error(kFailure) for a problem of another operator.
const PackedAttentionProblem& packed_attention_of(const Problem& problem);

}  // namespace vitune
