// generator/norm/kernel_spec.h -- What norm's operator, its family and its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/norm/problem.h"
#include "generator/tensor_spec.h"
#include "templates/norm/params.cuh"

namespace vitune {

// In the order of the C interface.
enum NormTensor {
  kNormX,
  kNormResidual,
  kNormWeight,
  kNormBias,
  kNormOut,
  kNormSum,
  kNormSecond,
  kNormMean,
  kNormRstd,
  kNormTensors
};
std::vector<TensorSpec> norm_tensors(const NormProblem& problem);

// The parameters of kernels, and where the call's tensors go in there.
NormParams norm_params(const NormProblem& problem);
std::vector<PointerSlot> norm_pointers();

// Elements that each access takes: 8, 4, 2 or 1, so that rows divide into them and every access of
// every tensor is aligned.
std::int64_t norm_vector(const NormProblem& problem);

// The family: a few threads for each row (rows.cpp).
const Family& norm_rows();

std::vector<std::string> norm_judge_entries();
LaunchPlan norm_answer(const NormProblem& problem, Precision precision);
std::vector<JudgeCase> norm_cases(const NormProblem& problem, const Config& config);
std::vector<Fill> norm_inputs(const NormProblem& problem, const std::string& draw);

}  // namespace vitune
