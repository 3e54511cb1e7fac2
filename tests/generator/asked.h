// tests/generator/asked.h -- What a problem's operator answers, for tests that hold the problem as
// a value: a value becomes a ProblemPtr.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/operator.h"

namespace vitune::testing_support {

inline ParameterSpace space_of(const ProblemPtr& problem, const DeviceInfo& device) {
  return problem->op().space(*problem, device);
}
inline std::vector<Config> defaults_of(const ProblemPtr& problem, const DeviceInfo& device) {
  return problem->op().defaults(*problem, device, space_of(problem, device));
}
inline std::string source_of(const ProblemPtr& problem, const Config& config) {
  return problem->op().source(*problem, config);
}
inline std::vector<KernelNeeds> kernels_of(const ProblemPtr& problem, const Config& config) {
  return problem->op().kernels(*problem, config);
}
inline std::optional<std::string> pruned(const ProblemPtr& problem, const Config& config,
                                         const CompileFacts& facts, const DeviceInfo& device) {
  return problem->op().prune(*problem, config, facts, device);
}
inline LaunchPlan plan_of(const ProblemPtr& problem, const Config& config, const DeviceInfo& device,
                          const std::vector<int>& resident) {
  return problem->op().plan(*problem, config, device, resident);
}

}  // namespace vitune::testing_support
