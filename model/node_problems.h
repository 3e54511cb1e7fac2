// model/node_problems.h -- Which problems a node of a model file asks.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "generator/problem.h"
#include "model/check.h"

namespace vitune {

// The problems of a node of a sound graph, for the batch of `tensors`: a norm before a layer is a
// problem of its own, and an operand that no kernel reads as it lies is taken as a dense copy. A
// map and a matmul have none. Throws Error(kUnsupported or kUsage), which begins with the file's
// path and the node, for sizes and types beyond those of the kernels.
std::vector<ProblemPtr> node_problems(const BatchTensors& tensors, const ModelNode& node);

}  // namespace vitune
