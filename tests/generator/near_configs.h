// tests/generator/near_configs.h -- Configs of a space that are not the one at hand, and like it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "generator/parameter_space.h"

namespace vitune::test {

// Those that differ from `config` in one tunable, in the order of the space.
inline std::vector<Config> configs_near(const ParameterSpace& space, const Config& config) {
  std::vector<Config> near;
  for (const Parameter& parameter : space.parameters()) {
    if (parameter.open) continue;
    Config other = config;
    for (const std::int64_t value : parameter.values) {
      other.set(parameter.name, value);
      if (other != config && !space.explain(other)) near.push_back(other);
    }
  }
  return near;
}

}  // namespace vitune::test
