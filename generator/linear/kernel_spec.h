// generator/linear/kernel_spec.h -- From (problem, config) to a linear layer's source, plan and
// judge.
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
#include "generator/linear/problem.h"
#include "generator/parameter_space.h"
#include "generator/tensor_spec.h"

namespace vitune {

// In the order of the C interface.
enum LinearTensor {
  kLinearX,
  kLinearW,
  kLinearBias,
  kLinearScale,
  kLinearResidual,
  kLinearOut,
  kLinearAux,
  kLinearMean,
  kLinearRstd,
  kLinearWeightSums,
  kLinearTensors
};
std::vector<TensorSpec> linear_tensors(const LinearProblem& problem);

// The widest aligned accesses, facts that a kernel is compiled for.
struct LinearAccesses {
  std::int64_t x_bytes = 16, w_bytes = 16;  // to rows of x and w: 16, 8, 4 or 2
  std::int64_t vector = 8;                  // columns of all that has n of them: 8, 4, 2 or 1
  bool operator==(const LinearAccesses&) const = default;
};
LinearAccesses linear_accesses(const LinearProblem& problem);

// What follows from a config alone (templates/linear/config_sm80.cuh).
std::int64_t linear_threads(const Config& config);
std::int64_t linear_shared_bytes(const LinearProblem& problem, const Config& config);
// CTAs of one split, and columns of x of each split: whole steps.
std::int64_t linear_tiles(const LinearProblem& problem, const Config& config);
std::int64_t linear_split_columns(const LinearProblem& problem, const Config& config);

ParameterSpace linear_space(const LinearProblem& problem, const DeviceInfo& device);
std::vector<Config> linear_defaults(const LinearProblem& problem, const DeviceInfo& device,
                                    const ParameterSpace& space);

std::string linear_source(const LinearProblem& problem, const Config& config);
std::optional<std::string> linear_prune(const LinearProblem& problem, const Config& config,
                                        const CompileFacts& facts, const DeviceInfo& device);

// One kernel; with splits a second one that adds them.
std::vector<KernelNeeds> linear_kernels(const LinearProblem& problem, const Config& config);
LaunchPlan linear_plan(const LinearProblem& problem, const Config& config);

Demand linear_demand(const LinearProblem& problem);

std::vector<std::string> linear_judge_entries();
LaunchPlan linear_answer(const LinearProblem& problem, Precision precision);
std::vector<JudgeCase> linear_cases(const LinearProblem& problem, const Config& config);
std::vector<Fill> linear_inputs(const LinearProblem& problem, const std::string& draw);

}  // namespace vitune
