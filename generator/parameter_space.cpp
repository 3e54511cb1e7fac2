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

namespace vitune {
namespace {

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorCode::kFailure, "parameter space: " + what);
}

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) {
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return text;
}

}  // namespace

ParameterSpace::ParameterSpace(std::vector<Parameter> parameters,
                               std::vector<Constraint> constraints)
    : parameters_(std::move(parameters)), constraints_(std::move(constraints)) {
  validate_parameters();
  decidable_.resize(parameters_.size());
  for (std::size_t c = 0; c < constraints_.size(); ++c) {
    const Constraint& constraint = constraints_[c];
    if (!constraint.violation) reject("the rule '" + constraint.rule + "' has no test");
    std::set<std::size_t> reads;
    for (const std::string& name : constraint.needs) {
      if (!reads.insert(index_of(name)).second || index_of(name) == parameters_.size()) {
        reject("the rule '" + constraint.rule + "' needs '" + name +
               "', which is repeated or not a parameter");
      }
    }
    decidable_[reads.empty() ? parameters_.size() - 1 : *reads.rbegin()].push_back(c);
  }
}

void ParameterSpace::validate_parameters() const {
  if (parameters_.empty()) reject("there are no parameters");
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto& [name, values, doc, categorical, needed, open] = parameters_[p];
    if (index_of(name) != p) reject("'" + name + "' is there twice");
    if (values.empty()) reject("'" + name + "' has no values");
    if (open && values != std::vector<std::int64_t>{0}) {
      reject("'" + name + "' is open and lists values other than 0");
    }
    const bool ascending =
        std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
    const bool distinct = std::set(values.begin(), values.end()).size() == values.size();
    if (categorical ? !distinct : !ascending) {
      reject("the values of '" + name + "' must be " +
             (categorical ? "different" : "ascending and different") + ": " + list_of(values));
    }
  }
}

std::size_t ParameterSpace::index_of(std::string_view name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  return static_cast<std::size_t>(found - parameters_.begin());
}

std::size_t ParameterSpace::cartesian_size() const {
  std::size_t size = 1;
  for (const Parameter& parameter : parameters_) {
    if (__builtin_mul_overflow(size, parameter.values.size(), &size)) {
      return std::numeric_limits<std::size_t>::max();
    }
  }
  return size;
}

std::vector<Config> ParameterSpace::enumerate() const {
  std::vector<Config> found;
  enumerate_from(Config(), 0, found);
  return found;
}

void ParameterSpace::enumerate_from(const Config& prefix, std::size_t depth,
                                    std::vector<Config>& found) const {
  // Each level has a config of its own that holds only what is set so far: a rule that reads more
  // than it declared then fails loudly instead of seeing values of another branch.
  Config config = prefix;
  for (const std::int64_t value : parameters_[depth].values) {
    if (!parameters_[depth].open) config.set(parameters_[depth].name, value);
    const bool broken = std::ranges::any_of(decidable_[depth], [&](std::size_t c) {
      return constraints_[c].violation(config).has_value();
    });
    if (broken) continue;
    if (depth + 1 == parameters_.size()) {
      found.push_back(config);
    } else {
      enumerate_from(config, depth + 1, found);
    }
  }
}

std::optional<std::string> ParameterSpace::explain_values(const Config& config) const {
  for (const auto& [name, value] : config) {
    if (index_of(name) == parameters_.size()) return name + " is not a parameter of this space";
  }
  for (const Parameter& parameter : parameters_) {
    if (parameter.open) continue;
    const auto value = config.find(parameter.name);
    if (!value) return parameter.name + " is missing";
    const auto& values = parameter.values;
    if (std::find(values.begin(), values.end(), *value) == values.end()) {
      return parameter.name + " = " + std::to_string(*value) + " is not one of " + list_of(values);
    }
  }
  return std::nullopt;
}

Config ParameterSpace::completed(const Config& config) const {
  Config whole = config;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.needed && !parameter.open && !whole.find(parameter.name)) {
      whole.set(parameter.name, parameter.values.front());
    }
  }
  return whole;
}

std::optional<std::string> ParameterSpace::explain(const Config& config) const {
  if (auto problem = explain_values(config)) return problem;
  for (const Constraint& constraint : constraints_) {
    if (const auto how = constraint.violation(config)) return constraint.rule + ": " + *how;
  }
  return std::nullopt;
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
