// generator/attention/problem_distance.h -- How attention problems are like each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/device_info.h"
#include "generator/attention/problem.h"

namespace vitune {

// The compile-time facts of a problem, two bytes each. How the rows of a bias lie is left out: it
// decides which configs may be taken over, and the space judges each of them, but is no reason to
// learn nothing from a neighbour.
std::string attention_class(const AttentionProblem& problem);

// How far two problems of one class are from each other, 0 for equal sizes: of evidence, not of
// kernels. Symmetric.
double problem_distance(const AttentionProblem& a, const AttentionProblem& b);

// True if two problems ask as much of the device, as far as it is not busy anyway: which form of
// kernel is best depends on how many blocks of rows there are for an SM.
bool is_load_alike(const AttentionProblem& a, const AttentionProblem& b, const DeviceInfo& device);

// Compares first the facts that a kernel depends on, then those a config may hold, then sizes.
bool is_tuned_before(const AttentionProblem& a, const AttentionProblem& b);

}  // namespace vitune
