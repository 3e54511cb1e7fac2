// generator/parameter_space.h -- Tunable parameters, their values and the rules between them.
//
// Operator-neutral: an operator builds a ParameterSpace for one problem on one device; search
// strategies only see the configs and their neighbours.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"

namespace vitune {

struct Parameter {
  std::string name;                  // "kBlockN"
  std::vector<std::int64_t> values;  // in order of magnitude
  std::string doc;                   // one line
};

// A rule that a config must obey, with its name and a sentence for the config that breaks it.
struct Constraint {
  std::string rule;  // "shared memory: (Q + K + V tiles) <= bytes per block"
  // Nothing if the config obeys; else why it does not, with the figures.
  std::function<std::optional<std::string>(const Config&)> violation;
};

class ParameterSpace {
 public:
  ParameterSpace(std::vector<Parameter> parameters, std::vector<Constraint> constraints);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }

  // Every config that obeys all constraints, in lexicographic order of the parameters.
  std::vector<Config> enumerate() const;
  // Number of configs before constraints.
  std::size_t cartesian_size() const;
  // Nothing if the config is in the space; else which rule it breaks and how.
  std::optional<std::string> explain(const Config& config) const;
  // Configs of the space that differ in one parameter by one step, or in any parameter marked
  // categorical by any value.
  std::vector<Config> neighbours(const Config& config) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
};

}  // namespace vitune
