// tuner/loop/stored_config.cpp -- Completes a stored config and asks the space.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/stored_config.h"

#include "generator/operator.h"

namespace vitune {

std::optional<std::string> outside_space(const Problem& problem, const DeviceInfo& device,
                                         const Config& config) {
  const ParameterSpace space = problem.op().space(problem, device);
  return space.explain(space.completed(config));
}

}  // namespace vitune
