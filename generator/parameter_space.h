// generator/parameter_space.h -- Tunable parameters, their values and the rules between them.
//
// Operator-neutral: an operator builds a ParameterSpace for one problem on one device; search
// strategies only see the configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"

namespace vitune {

struct Parameter {
  std::string name;                  // "kBlockN"
  std::vector<std::int64_t> values;  // ascending, unless categorical
  std::string doc;                   // one line
  bool categorical = false;          // the values have no order: each is one step from each other
  bool needed = false;               // no value means "without it"; of others the first one does
  // Any value may stand here, and none means 0: what a library on the device tells
  // (Operator::proposals()). `values` has 0 alone, nothing is enumerated.
  bool open = false;
};

// A rule that a config must obey, with its name and a sentence for the config that breaks it.
struct Constraint {
  std::string rule;  // "shared memory: (Q + K + V tiles) <= bytes per block"
  // Nothing if the config obeys; else why it does not, with the figures.
  std::function<std::optional<std::string>(const Config&)> violation;
  // The parameters that `violation` reads; empty: all. It is asked as soon as these are set, with a
  // config that may hold nothing else, so that no time goes into what a rule excludes anyway.
  std::vector<std::string> needs = {};
};

class ParameterSpace {
 public:
  // Throws Error(kFailure) for a parameter without values, with values out of order or repeated,
  // for a repeated name, and for a constraint that needs a parameter that does not exist.
  ParameterSpace(std::vector<Parameter> parameters, std::vector<Constraint> constraints);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }

  // Every config that obeys all constraints, in lexicographic order: the first parameter varies
  // slowest, each in the order of its values.
  std::vector<Config> enumerate() const;
  // Number of configs before constraints; the largest size_t if it exceeds that.
  std::size_t cartesian_size() const;
  // A config stored before a tunable existed does without it: `config` with the first value of each
  // parameter that it lacks, unless that is needed.
  Config completed(const Config& config) const;
  // Nothing if the config is in the space; else which rule it breaks and how.
  std::optional<std::string> explain(const Config& config) const;

 private:
  void validate_parameters() const;
  // Position of a parameter; the number of parameters if there is none of that name.
  std::size_t index_of(std::string_view name) const;
  std::optional<std::string> explain_values(const Config& config) const;
  void enumerate_from(const Config& prefix, std::size_t depth, std::vector<Config>& found) const;

  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  // Per parameter: the constraints of which it is the last one read.
  std::vector<std::vector<std::size_t>> decidable_;
};

// Of the configs that have a cost, the `most` of the least, the least first; equal ones in their
// order.
std::vector<Config> cheapest(const std::vector<Config>& configs, std::size_t most,
                             const std::function<std::optional<double>(const Config&)>& cost);

}  // namespace vitune
