// generator/parameter_space.h -- Tunable parameters, their values and the rules between them.
//
// The space of one problem on one device is the union of its families' spaces (generator/family.h);
// search strategies only see the configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// The configs of one family. A parameter of one value is none of its tunables: stored configs name
// it because another family has it.
struct FamilySpace {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Constraint> constraints;
  // True if a config is of this family; none: each is.
  std::function<bool(const Config&)> owns = {};
  // Why the family has no configs here, or nothing.
  std::optional<std::string> refusal = {};
};

class ParameterSpace {
 public:
  // Throws Error(kFailure) if there is no family, for a parameter without values, with values out
  // of order or repeated, for a repeated name, and for a constraint that needs a parameter that
  // does not exist.
  explicit ParameterSpace(std::vector<FamilySpace> families);
  // A space of one family.
  ParameterSpace(std::vector<Parameter> parameters, std::vector<Constraint> constraints);

  const std::vector<FamilySpace>& families() const { return families_; }
  // The parameters of all families, each once, with the values that it has in any.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // The rules of all families that have configs, each once: "sm90: threads: at most 1024"; without
  // a name where all have it.
  std::vector<std::string> rules() const;

  // Every config that obeys all constraints, family by family, of each in lexicographic order: the
  // first parameter varies slowest, each in the order of its values.
  std::vector<Config> enumerate() const;
  // The configs of the family of this name alone; none if there is no such family.
  std::vector<Config> enumerate(std::string_view family) const;
  // Number of configs before constraints; the largest size_t if it exceeds that.
  std::size_t cartesian_size() const;
  // A config stored before a tunable existed does without it: `config` with the first value of each
  // parameter of its family that it lacks, unless that is needed.
  Config completed(const Config& config) const;
  // Nothing if the config is in the space; else which rule it breaks and how.
  std::optional<std::string> explain(const Config& config) const;

 private:
  // Where a config belongs, or null.
  const FamilySpace* family_of(const Config& config) const;

  std::vector<FamilySpace> families_;
  std::vector<Parameter> parameters_;
};

// `parameters`, those of these names with these values in place of their own.
std::vector<Parameter> with_values(
    std::vector<Parameter> parameters,
    const std::vector<std::pair<std::string_view, std::vector<std::int64_t>>>& values);

// The `most` configs of the least cost, the least first; equal ones in their
// order.
std::vector<Config> cheapest(const std::vector<Config>& configs, std::size_t most,
                             const std::function<std::optional<double>(const Config&)>& cost);

}  // namespace vitune
