// generator/attention/rules.h -- Rules between the attention kernels' tunables, for families to
// choose from.
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

// Registers and shared memory, for all families.
std::vector<NamedRule> resource_rules(const DeviceInfo& device);

// Warps have rows; persistent CTAs have more than one work item; without copying warps there are no
// steps that divide nothing.
NamedRule rows_rule();
NamedRule items_rule(const AttentionProblem& problem, const DeviceInfo& device);
NamedRule wide_steps_rule();
// Stages of steps of keys, without copying warps.
NamedRule stages_rule();
// Resident heads without copying warps: how many a CTA has, how many CTAs a head has, a bias that
// stays.
std::vector<NamedRule> resident_rules(const AttentionProblem& problem, const DeviceInfo& device);
// Steps of wgmma.
NamedRule wgmma_steps_rule();

void append(std::vector<NamedRule>& rules, std::vector<NamedRule> more);

}  // namespace vitune
