// generator/attention/rules.h -- Rules between the attention kernels' tunables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device_info.h"
#include "generator/attention/facts.h"
#include "generator/attention/problem.h"

namespace vitune {

// Why a config is outside the space, or nothing.
using Rule = std::function<std::optional<std::string>(const AttentionShape&)>;

struct NamedRule {
  std::string text;
  std::vector<std::string> needs;  // the parameters that it reads; none: all of them
  Rule violation;
};

// Of warps that do nothing but copy, and of those for spare rows.
std::vector<NamedRule> producer_rules(const AttentionProblem& problem, const DeviceInfo& device);

}  // namespace vitune
