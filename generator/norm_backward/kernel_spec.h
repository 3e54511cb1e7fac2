// generator/norm_backward/kernel_spec.h -- What the operator of norms' gradients, its family and
// its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/norm_backward/problem.h"
#include "generator/tensor_spec.h"
#include "templates/norm_backward/params.cuh"

namespace vitune {

// In the order of the C interface.
enum NormBackwardTensor {
  kNormBackwardDy,
  kNormBackwardX,
  kNormBackwardMean,
  kNormBackwardRstd,
  kNormBackwardWeight,
  kNormBackwardResidual,
  kNormBackwardFactor,
  kNormBackwardDx,
  kNormBackwardSecond,
  kNormBackwardDweight,
  kNormBackwardDbias,
  kNormBackwardTensors
};
std::vector<TensorSpec> norm_backward_tensors(const NormBackwardProblem& problem);

// Elements that each access takes at most: 8, 4, 2 or 1, so that rows divide into them and every
// access of every tensor is aligned.
std::int64_t norm_backward_vector(const NormBackwardProblem& problem);

// The parameters of kernels, and where the call's tensors go in there.
NormBackwardParams norm_backward_params(const NormBackwardProblem& problem);
std::vector<PointerSlot> norm_backward_pointers();

// The family: a few threads for each row, and a kernel that adds what CTAs leave (rows.cpp).
const Family& norm_backward_rows();

std::vector<std::string> norm_backward_judge_entries();
LaunchPlan norm_backward_answer(const NormBackwardProblem& problem, Precision precision);
std::vector<JudgeCase> norm_backward_cases(const NormBackwardProblem& problem,
                                           const Config& config);
std::vector<Fill> norm_backward_inputs(const NormBackwardProblem& problem, const std::string& draw);

}  // namespace vitune
