// generator/map/operator.h -- Expressions of tensors, element by element or reduced, as an
// operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/map/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& map_operator();
// Throws Error(kFailure) for a problem of another operator.
const MapProblem& map_of(const Problem& problem);

}  // namespace vitune
