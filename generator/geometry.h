// generator/geometry.h -- Between configs and a family's geometry: the constexpr struct of ints in
// templates/ that its kernels read too.
//
// A geometry G holds a config's tunables and the facts of the problem that sizes follow from. Its
// rules are an array of G::Rule {sentence, members that it reads, predicate}, which the kernels
// assert. A family lists its tunables once, as members; the space, the rules and the text of a
// generated Config follow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/format.h"
#include "generator/parameter_space.h"

namespace vitune {

// Shape: a geometry, or what derives from one with tunables that only the launch knows.
template <class Shape>
struct Tunable {
  int Shape::*member;
  Parameter parameter;
};

template <class Shape>
using Tunables = std::vector<Tunable<Shape>>;

template <class Shape>
std::vector<Parameter> parameters_of(const Tunables<Shape>& tunables) {
  std::vector<Parameter> parameters;
  for (const Tunable<Shape>& tunable : tunables) parameters.push_back(tunable.parameter);
  return parameters;
}

// `facts` with the tunables of `config`. Throws Error(kFailure) for a config without one that is
// needed.
template <class Shape>
Shape read_tunables(const Tunables<Shape>& tunables, const Config& config, Shape facts) {
  for (const Tunable<Shape>& tunable : tunables) {
    const Parameter& parameter = tunable.parameter;
    const std::int64_t value =
        parameter.needed ? config.at(parameter.name) : config.find(parameter.name).value_or(0);
    facts.*tunable.member = static_cast<int>(value);
  }
  return facts;
}

// The config of these values, in the order of the tunables.
template <class Shape>
Config config_of(const Tunables<Shape>& tunables, const std::vector<std::int64_t>& values) {
  Config config;
  for (std::size_t i = 0; i < tunables.size(); ++i) {
    config.set(tunables[i].parameter.name, values[i]);
  }
  return config;
}

// A rule of a space: `sentence`, for a config whose tunables among `reads` break `holds`, with
// their values and what `figures` adds. A member that the family does not tune has the value that
// `facts` has.
template <class Shape>
Constraint shape_rule(std::string sentence, const Tunables<Shape>& tunables, const Shape& facts,
                      const std::vector<int Shape::*>& reads,
                      std::function<bool(const Shape&)> holds,
                      std::function<std::string(const Shape&)> figures = {}) {
  Tunables<Shape> read;
  for (const Tunable<Shape>& tunable : tunables) {
    for (int Shape::*const member : reads) {
      if (member == tunable.member) read.push_back(tunable);
    }
  }
  Constraint constraint{std::move(sentence), {}, {}};
  for (const Tunable<Shape>& tunable : read) constraint.needs.push_back(tunable.parameter.name);
  constraint.violation = [read, facts, holds = std::move(holds), figures = std::move(figures)](
                             const Config& config) -> std::optional<std::string> {
    const Shape shape = read_tunables(read, config, facts);
    if (holds(shape)) return std::nullopt;
    std::string values;
    for (const Tunable<Shape>& tunable : read) {
      const std::string& name = tunable.parameter.name;
      values += formatted("{}{} = {}", values.empty() ? "" : ", ", name, config.at(name));
    }
    return figures ? values + "; " + figures(shape) : values;
  };
  return constraint;
}

// The rules of a geometry as rules of a space.
template <class Shape, class Rule, std::size_t kRules>
std::vector<Constraint> geometry_rules(const Rule (&rules)[kRules], const Tunables<Shape>& tunables,
                                       const Shape& facts) {
  std::vector<Constraint> constraints;
  for (const Rule& rule : rules) {
    std::vector<int Shape::*> reads;
    for (const auto member : rule.reads) {
      if (member != nullptr) reads.push_back(member);
    }
    constraints.push_back(shape_rule<Shape>(rule.sentence, tunables, facts, reads, rule.holds));
  }
  return constraints;
}

// The line in a generated Config: "static constexpr GemmSm90 kGeometry = {128, 192, ...};".
template <class G>
std::string geometry_text(std::string_view type, const G& geometry) {
  static_assert(std::is_trivially_copyable_v<G> && sizeof(G) % sizeof(int) == 0);
  const auto numbers = std::bit_cast<std::array<int, sizeof(G) / sizeof(int)>>(geometry);
  return formatted("  static constexpr {} kGeometry = {{{}}};\n", type, joined(numbers, ", "));
}

}  // namespace vitune
