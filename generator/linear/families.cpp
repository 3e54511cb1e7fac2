// generator/linear/families.cpp -- The families of linear layers, and one space of all of them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "generator/linear/family.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

constexpr char kFamily[] = "kFamily";

// By their number in kFamily, which is in stored configs: new ones come last.
std::array<const LinearFamily*, 5> all_families() {
  return {&linear_sm80(), &linear_sm90(), &linear_cublaslt(), &linear_chain(),
          &linear_sm90_split_k()};
}

// Which families' configs to try first, without tuning and in a search.
std::vector<const LinearFamily*> by_preference() {
  return {&linear_sm90(), &linear_sm80(), &linear_sm90_split_k()};
}

std::int64_t number_of(const LinearFamily& family) {
  const auto all = linear_families();
  return std::find(all.begin(), all.end(), &family) - all.begin();
}

Parameter family_parameter() {
  Parameter family{kFamily, {}, "", true};
  for (const LinearFamily* each : linear_families()) {
    const std::int64_t number = number_of(*each);
    family.values.push_back(number);
    family.doc += formatted("{}{} {}", number > 0 ? ", " : "", number, each->name());
  }
  return family;
}

// The tunables of all families, with the values that any gives them; 0 where some have none.
std::vector<Parameter> merged_parameters() {
  std::vector<Parameter> merged = {family_parameter()};
  std::size_t families = 0;
  for (const LinearFamily* family : linear_families()) {
    for (Parameter& parameter : family->parameters()) {
      const auto there = std::ranges::find(merged, parameter.name, &Parameter::name);
      if (there != merged.end()) {
        std::set<std::int64_t> values(there->values.begin(), there->values.end());
        values.insert(parameter.values.begin(), parameter.values.end());
        there->values.assign(values.begin(), values.end());
        continue;
      }
      // A config that was stored before this family was there does without.
      if (families > 0) parameter.needed = false;
      merged.push_back(std::move(parameter));
    }
    ++families;
  }
  for (Parameter& parameter : merged) {
    const bool of_all = std::ranges::all_of(linear_families(), [&](const LinearFamily* family) {
      const std::vector<Parameter> own = family->parameters();
      return std::ranges::find(own, parameter.name, &Parameter::name) != own.end();
    });
    if (of_all || parameter.name == kFamily || parameter.values.front() == 0) continue;
    parameter.values.insert(parameter.values.begin(), 0);
  }
  return merged;
}

// Each family's values of each tunable.
Constraint values_rule(const Parameter& merged) {
  struct Values {
    std::vector<std::int64_t> listed = {0};
    bool any = false;
  };
  std::vector<Values> allowed;
  for (const LinearFamily* family : linear_families()) {
    const std::vector<Parameter> own = family->parameters();
    const auto found = std::ranges::find(own, merged.name, &Parameter::name);
    allowed.push_back(found != own.end() ? Values{found->values, found->open} : Values{});
  }
  return {formatted("{}: a value of the family's, 0 where it has none", merged.name),
          [allowed, name = merged.name](const Config& c) -> std::optional<std::string> {
            const auto family = static_cast<std::size_t>(c.at(kFamily));
            const auto& [listed, any] = allowed[family];
            const std::int64_t value = c.find(name).value_or(0);
            if (any || std::ranges::count(listed, value) > 0) return std::nullopt;
            return formatted("{} of {}", value, linear_families()[family]->name());
          },
          {kFamily, merged.name}};
}

// `rule` for configs of family number `number` alone.
Constraint rule_of(std::int64_t number, Constraint rule) {
  rule.rule =
      formatted("{}, {}", linear_families()[static_cast<std::size_t>(number)]->name(), rule.rule);
  rule.violation = [number, violation = std::move(rule.violation)](
                       const Config& c) -> std::optional<std::string> {
    return c.at(kFamily) == number ? violation(c) : std::nullopt;
  };
  if (!rule.needs.empty()) rule.needs.emplace_back(kFamily);
  return rule;
}

}  // namespace

std::span<const LinearFamily* const> linear_families() {
  static const auto families = all_families();
  return families;
}

const LinearFamily& linear_family(const Config& config) {
  const std::int64_t number = config.find(kFamily).value_or(0);
  const auto all = linear_families();
  if (number >= 0 && number < static_cast<std::int64_t>(all.size())) {
    return *all[static_cast<std::size_t>(number)];
  }
  throw Error(ErrorCode::kFailure,
              formatted("kFamily = {}: linear layers have {} families", number, all.size()));
}

ParameterSpace linear_space(const LinearProblem& problem, const DeviceInfo& device) {
  std::vector<Parameter> parameters = merged_parameters();
  std::vector<std::optional<std::string>> refusals;
  for (const LinearFamily* family : linear_families()) {
    refusals.push_back(family->refusal(problem, device));
  }
  std::vector<Constraint> rules = {
      {"kFamily: one that serves the problem on this device",
       [refusals](const Config& c) { return refusals[static_cast<std::size_t>(c.at(kFamily))]; },
       {kFamily}}};
  for (const Parameter& parameter : parameters) {
    if (parameter.name != kFamily) rules.push_back(values_rule(parameter));
  }
  for (const LinearFamily* family : linear_families()) {
    if (family->refusal(problem, device)) continue;
    for (Constraint& rule : family->rules(problem, device)) {
      rules.push_back(rule_of(number_of(*family), std::move(rule)));
    }
  }
  return {std::move(parameters), std::move(rules)};
}

std::vector<Config> linear_defaults(const LinearProblem& problem, const DeviceInfo& device,
                                    const ParameterSpace& space) {
  std::vector<Config> configs;
  for (const LinearFamily* family : by_preference()) {
    if (family->refusal(problem, device)) continue;
    for (Config& config : family->defaults(problem, device, space)) {
      configs.push_back(whole_linear_config(*family, config, space));
    }
  }
  if (configs.empty() && problem.has_moments()) {
    const auto why = linear_sm90().refusal(problem, device);
    throw Error(ErrorCode::kUnsupported,
                formatted("'{}': moments of rows are of the kernels for 9.0{}{}", problem.text(),
                          why ? "; " : "", why.value_or("")));
  }
  return configs;
}

std::vector<Config> linear_proposals(const LinearProblem& problem, const DeviceInfo& device,
                                     Libraries& libraries) {
  const ParameterSpace space = linear_space(problem, device);
  std::vector<Config> configs;
  for (const LinearFamily* family : linear_families()) {
    if (!family->calls_library() || family->refusal(problem, device)) continue;
    for (Config& config : family->proposals(problem, libraries)) {
      configs.push_back(whole_linear_config(*family, std::move(config), space));
    }
  }
  return configs;
}

Config whole_linear_config(const LinearFamily& family, Config own, const ParameterSpace& space) {
  own.set(kFamily, number_of(family));
  for (const Parameter& parameter : space.parameters()) {
    if (!parameter.open && !own.find(parameter.name)) own.set(parameter.name, 0);
  }
  return own;
}

}  // namespace vitune
