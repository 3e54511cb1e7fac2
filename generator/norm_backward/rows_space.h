// generator/norm_backward/rows_space.h -- Tunables of norms' gradients, their rules, and good
// values without tuning.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/norm_backward/problem.h"
#include "generator/parameter_space.h"

namespace vitune {

std::vector<Parameter> norm_backward_parameters(const NormBackwardProblem& problem);
std::vector<Constraint> norm_backward_rules(const NormBackwardProblem& problem,
                                            const DeviceInfo& device);
// The less the better; nothing for a config that is not to be tried first.
std::optional<double> norm_backward_rank(const NormBackwardProblem& problem, const Config& config,
                                         const DeviceInfo& device);

}  // namespace vitune
