// probe/ladder.h -- The ladder: plain attention kernels, each with one idea more than the one
// before, to read and to hold tuned ones against.
//
// The kernels are templates/reference/attention_<name>.cuh. They take 16-bit inputs in any layout
// whose rows are aligned to 16 bytes, any number of tokens and head sizes up to 128.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/attention/problem.h"
#include "generator/compiler.h"

namespace vitune {

// naive, tiled, register_blocked, tensor_core.
const std::vector<std::string>& ladder_names();

// Why the kernels do not take this problem, or nothing.
std::optional<std::string> ladder_violation(const AttentionProblem& problem);

// One of ladder_names() for `problem`; throws Error(kUnsupported) where ladder_violation() speaks,
// Error(kFailure) for another name.
struct LadderKernel {
  CompileRequest request;
  LaunchShape shape;
};
LadderKernel ladder_kernel(const std::string& name, const AttentionProblem& problem,
                           const std::string& arch);

// Every rung for `arch`, for a head size of whole tiles and one with a tail, each type once; with
// names for people.
std::vector<std::pair<std::string, CompileRequest>> ladder_samples(const std::string& arch);

}  // namespace vitune
