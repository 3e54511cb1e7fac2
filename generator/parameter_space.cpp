// generator/parameter_space.cpp -- Enumeration and explanations of a constrained space.
// SPDX-License-Identifier: Apache-2.0
#include "generator/parameter_space.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using Parameters = std::vector<Parameter>;

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::kFailure, "parameter space: " + what);
}

// The number of parameters if there is none of that name.
std::size_t index_of(const Parameters& parameters, std::string_view name) {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  return static_cast<std::size_t>(found - parameters.begin());
}

void validate(const Parameters& parameters) {
  if (parameters.empty()) reject("there are no parameters");
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, values, doc, categorical, needed, open] = parameters[p];
    if (index_of(parameters, name) != p) reject("'" + name + "' is there twice");
    if (values.empty()) reject("'" + name + "' has no values");
    if (open && values != std::vector<std::int64_t>{0}) {
      reject("'" + name + "' is open and lists values other than 0");
    }
    const bool ascending =
        std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
    const bool distinct = std::set(values.begin(), values.end()).size() == values.size();
    if (categorical ? !distinct : !ascending) {
      reject("the values of '" + name + "' must be " +
             (categorical ? "different" : "ascending and different") + ": " + joined(values, ", "));
    }
  }
}

// For each parameter the constraints of which it is the last one read.
using Decidable = std::vector<std::vector<const Constraint*>>;

Decidable decidable(const FamilySpace& family) {
  Decidable at(family.parameters.size());
  for (const Constraint& constraint : family.constraints) {
    if (!constraint.violation) reject("the rule '" + constraint.rule + "' has no test");
    std::set<std::size_t> reads;
    for (const std::string& name : constraint.needs) {
      const std::size_t index = index_of(family.parameters, name);
      if (!reads.insert(index).second || index == family.parameters.size()) {
        reject("the rule '" + constraint.rule + "' needs '" + name +
               "', which is repeated or not a parameter");
      }
    }
    at[reads.empty() ? at.size() - 1 : *reads.rbegin()].push_back(&constraint);
  }
  return at;
}

void enumerate_from(const FamilySpace& family, const Decidable& rules, const Config& prefix,
                    std::size_t depth, std::vector<Config>& found) {
  const Parameter& parameter = family.parameters[depth];
  // Each level has a config of its own that holds only what is set so far: a rule that reads more
  // than it declared then fails loudly instead of seeing values of another branch.
  Config config = prefix;
  for (const std::int64_t value : parameter.values) {
    if (!parameter.open) config.set(parameter.name, value);
    const bool broken = std::ranges::any_of(
        rules[depth], [&](const Constraint* rule) { return rule->violation(config).has_value(); });
    if (broken) continue;
    if (depth + 1 == family.parameters.size()) {
      found.push_back(config);
    } else {
      enumerate_from(family, rules, config, depth + 1, found);
    }
  }
}

void enumerate_family(const FamilySpace& family, std::vector<Config>& found) {
  if (!family.refusal) enumerate_from(family, decidable(family), Config(), 0, found);
}

std::optional<std::string> explain_values(const Parameters& parameters, const Config& config) {
  for (const auto& [name, value] : config) {
    if (index_of(parameters, name) == parameters.size()) {
      return name + " is not a parameter of this space";
    }
  }
  for (const Parameter& parameter : parameters) {
    if (parameter.open) continue;
    const auto value = config.find(parameter.name);
    if (!value) return parameter.name + " is missing";
    if (std::ranges::count(parameter.values, *value) == 0) {
      return parameter.name + " = " + std::to_string(*value) + " is not one of " +
             joined(parameter.values, ", ");
    }
  }
  return std::nullopt;
}

std::optional<std::string> explain_in(const FamilySpace& family, const Config& config) {
  if (family.refusal) return family.name + " does not serve this: " + *family.refusal;
  if (auto problem = explain_values(family.parameters, config)) return problem;
  for (const Constraint& constraint : family.constraints) {
    if (const auto how = constraint.violation(config)) return constraint.rule + ": " + *how;
  }
  return std::nullopt;
}

// Adds what `parameter` of another family has more.
void merge(Parameter& into, const Parameter& parameter) {
  for (const std::int64_t value : parameter.values) {
    if (std::ranges::count(into.values, value) == 0) into.values.push_back(value);
  }
  into.categorical |= parameter.categorical;
  into.open |= parameter.open;
  if (!into.categorical) std::ranges::sort(into.values);
  if (into.doc.empty()) into.doc = parameter.doc;
}

Parameters merged(const std::vector<FamilySpace>& families) {
  Parameters all;
  for (const FamilySpace& family : families) {
    for (const Parameter& parameter : family.parameters) {
      const std::size_t index = index_of(all, parameter.name);
      if (index == all.size()) {
        all.push_back(parameter);
      } else {
        merge(all[index], parameter);
      }
    }
  }
  return all;
}

}  // namespace

ParameterSpace::ParameterSpace(std::vector<FamilySpace> families) : families_(std::move(families)) {
  if (families_.empty()) reject("there are no families");
  for (const FamilySpace& family : families_) {
    validate(family.parameters);
    decidable(family);
  }
  parameters_ = merged(families_);
}

ParameterSpace::ParameterSpace(std::vector<Parameter> parameters,
                               std::vector<Constraint> constraints)
    : ParameterSpace(
          std::vector<FamilySpace>{{"", std::move(parameters), std::move(constraints)}}) {}

std::vector<std::string> ParameterSpace::rules() const {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;  // with its families
  std::size_t serving = 0;
  for (const FamilySpace& family : families_) {
    if (family.refusal) continue;
    ++serving;
    for (const Constraint& constraint : family.constraints) {
      auto there = std::ranges::find(found, constraint.rule, [](const auto& f) { return f.first; });
      if (there == found.end()) there = found.insert(found.end(), {constraint.rule, {}});
      there->second.push_back(family.name);
    }
  }
  std::vector<std::string> texts;
  for (const auto& [rule, names] : found) {
    texts.push_back(names.size() == serving ? rule
                                            : formatted("{}: {}", joined(names, ", "), rule));
  }
  return texts;
}

std::size_t ParameterSpace::cartesian_size() const {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  std::size_t all = 0;
  for (const FamilySpace& family : families_) {
    if (family.refusal) continue;
    std::size_t size = 1;
    for (const Parameter& parameter : family.parameters) {
      if (__builtin_mul_overflow(size, parameter.values.size(), &size)) return kMost;
    }
    if (__builtin_add_overflow(all, size, &all)) return kMost;
  }
  return all;
}

std::vector<Config> ParameterSpace::enumerate() const {
  std::vector<Config> found;
  for (const FamilySpace& family : families_) enumerate_family(family, found);
  return found;
}

std::vector<Config> ParameterSpace::enumerate(std::string_view name) const {
  std::vector<Config> found;
  for (const FamilySpace& family : families_) {
    if (family.name == name) enumerate_family(family, found);
  }
  return found;
}

const FamilySpace* ParameterSpace::family_of(const Config& config) const {
  const auto found = std::ranges::find_if(
      families_, [&](const FamilySpace& family) { return !family.owns || family.owns(config); });
  return found == families_.end() ? nullptr : &*found;
}

Config ParameterSpace::completed(const Config& config) const {
  Config whole = config;
  const FamilySpace* family = family_of(config);
  if (family == nullptr) return whole;
  for (const Parameter& parameter : family->parameters) {
    if (!parameter.needed && !parameter.open && !whole.find(parameter.name)) {
      whole.set(parameter.name, parameter.values.front());
    }
  }
  return whole;
}

std::optional<std::string> ParameterSpace::explain(const Config& config) const {
  const FamilySpace* family = family_of(config);
  if (family == nullptr) return "it is of no family that there is";
  return explain_in(*family, config);
}

std::vector<Parameter> with_values(
    std::vector<Parameter> parameters,
    const std::vector<std::pair<std::string_view, std::vector<std::int64_t>>>& values) {
  for (const auto& [name, own] : values) {
    const std::size_t index = index_of(parameters, name);
    if (index == parameters.size()) reject("there is no parameter " + std::string(name));
    parameters[index].values = own;
  }
  return parameters;
}

std::vector<Config> cheapest(const std::vector<Config>& configs, std::size_t most,
                             const std::function<std::optional<double>(const Config&)>& cost) {
  std::vector<std::pair<double, const Config*>> found;
  for (const Config& config : configs) {
    if (const auto its = cost(config)) found.emplace_back(*its, &config);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, const Config*>::first);
  std::vector<Config> best;
  for (const auto& [its, config] : found | std::views::take(most)) best.push_back(*config);
  return best;
}

}  // namespace vitune
