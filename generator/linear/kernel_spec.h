// generator/linear/kernel_spec.h -- Linear layers: their space, and what their families share of
// source, plan and judge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/floor.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/linear/family.h"
#include "generator/linear/problem.h"
#include "generator/parameter_space.h"
#include "generator/tensor_spec.h"
#include "templates/linear/params.cuh"

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
  kLinearMoments,
  kLinearOutMoments,
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

// Of all families (families.cpp). Defaults: Error(kUnsupported) where none takes moments of rows.
ParameterSpace linear_space(const LinearProblem& problem, const DeviceInfo& device);
std::vector<Config> linear_defaults(const LinearProblem& problem, const DeviceInfo& device,
                                    const ParameterSpace& space);

// What a library on the device proposes for all families; nothing where it is not there.
std::vector<Config> linear_proposals(const LinearProblem& problem, const DeviceInfo& device,
                                     Libraries& libraries);

// A config of `family` with a value for each tunable of `space`: those of other families are 0.
Config whole_linear_config(const LinearFamily& family, Config own, const ParameterSpace& space);

// Members of a generated Config: one number or flag, and all facts of a problem.
std::string linear_number(std::string_view name, std::int64_t value);
std::string linear_flag(std::string_view name, bool value);
std::string linear_facts_text(const LinearProblem& problem);

// What kernels are handed, in one split, and where the call's tensors go in there.
LinearParams linear_params(const LinearProblem& problem);
std::vector<PointerSlot> linear_pointers(const LinearProblem& problem);

Demand linear_demand(const LinearProblem& problem);

std::vector<std::string> linear_judge_entries();
LaunchPlan linear_answer(const LinearProblem& problem, Precision precision);
std::vector<JudgeCase> linear_cases(const LinearProblem& problem, const LinearBlock& block);
std::vector<Fill> linear_inputs(const LinearProblem& problem, const std::string& draw);

}  // namespace vitune
