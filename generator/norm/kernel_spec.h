// generator/norm/kernel_spec.h -- From (problem, config) to a norm's source, plan and judge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/compile_facts.h"
#include "core/config.h"
#include "core/device_info.h"
#include "generator/floor.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/norm/problem.h"
#include "generator/parameter_space.h"
#include "generator/tensor_spec.h"

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

// Elements that each access takes: 8, 4, 2 or 1, so that rows divide into them and every access of
// every tensor is aligned.
std::int64_t norm_vector(const NormProblem& problem);

ParameterSpace norm_space(const NormProblem& problem);
std::vector<Config> norm_defaults(const NormProblem& problem, const DeviceInfo& device,
                                  const ParameterSpace& space);

std::string norm_entry();
std::string norm_source(const NormProblem& problem, const Config& config);
std::optional<std::string> norm_prune(const NormProblem& problem, const Config& config,
                                      const CompileFacts& facts, const DeviceInfo& device);

KernelNeeds norm_kernel(const Config& config);
LaunchPlan norm_plan(const NormProblem& problem, const Config& config, const DeviceInfo& device,
                     int resident);

Demand norm_demand(const NormProblem& problem);

std::vector<std::string> norm_judge_entries();
LaunchPlan norm_answer(const NormProblem& problem, Precision precision);
std::vector<JudgeCase> norm_cases(const NormProblem& problem, const Config& config);
std::vector<Fill> norm_inputs(const NormProblem& problem, const std::string& draw);

}  // namespace vitune
