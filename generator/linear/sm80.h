// generator/linear/sm80.h -- What follows from a config of the family sm80.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/linear/problem.h"
#include "generator/parameter_space.h"

namespace vitune {

// As templates/linear/config_sm80.cuh has it.
std::int64_t linear_sm80_threads(const Config& config);
std::int64_t linear_sm80_shared_bytes(const LinearProblem& problem, const Config& config);
// CTAs of one split, and columns of x of each split: whole steps.
std::int64_t linear_sm80_tiles(const LinearProblem& problem, const Config& config);
std::int64_t linear_sm80_split_columns(const LinearProblem& problem, const Config& config);

std::vector<Parameter> linear_sm80_parameters();
std::vector<Constraint> linear_sm80_rules(const LinearProblem& problem, const DeviceInfo& device);
std::vector<Config> linear_sm80_defaults(const LinearProblem& problem, const DeviceInfo& device,
                                         const ParameterSpace& space);

}  // namespace vitune
