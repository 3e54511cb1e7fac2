// tuner/search/search.h -- Search strategies: which config to try next, given what is known so far.
//
// Operator-neutral. A strategy sees the configs of a space by index and is told the cost of each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/parameter_space.h"

namespace vitune {

class SearchStrategy {
 public:
  virtual ~SearchStrategy() = default;
  // The index of the next config to try, or nothing if none is left or all sensible ones are being
  // tried; never the same twice.
  virtual std::optional<std::size_t> propose() = 0;
  // Takes the result of a proposal: its cost in microseconds, or nothing if it failed or was
  // pruned.
  virtual void report(std::size_t index, std::optional<double> cost) = 0;
  // True if it expects nothing better from the configs that are left.
  virtual bool converged() const { return false; }
};

// The configs of one space and which of them are neighbours: they differ in one parameter, whose
// value is the next one up or down for which such a config exists, or any other if it is
// categorical.
struct SearchSpace {
  std::vector<Parameter> parameters;
  std::vector<Config> configs;
  std::vector<std::vector<std::size_t>> neighbours;
  // [config][parameter]: position of the value among the parameter's values.
  std::vector<std::string> coordinates;
  // The config that is good without tuning, if it is here.
  std::optional<std::size_t> preset;
  // Those that a library proposed: each is to be tried.
  std::vector<std::size_t> proposed;
  // Good configs without tuning of each further family: else a small family among thousands of
  // another's configs would not be met.
  std::vector<std::size_t> of_families;

  // All configs of the space, and `proposals`, of which those outside it are left out.
  explicit SearchSpace(const ParameterSpace& space, const std::vector<Config>& proposals = {});
  // A space of configs given one by one, with these parameters, 0 where one has no value. Throws
  // Error(kUsage) for a value that is not among its parameter's, and for a config that is there
  // twice.
  SearchSpace(std::vector<Parameter> space_parameters, std::vector<Config> space_configs);

  std::optional<std::size_t> find(const Config& config) const;
  std::size_t size() const { return configs.size(); }

 private:
  void index_configs();
  void link_neighbours();
  std::vector<std::size_t> sorted_;  // positions in configs, in the order of Config's comparison
};

// `count` of the indices below `size`, each once, drawn evenly and put in ascending order; all if
// there are no more. The same for the same seed.
std::vector<std::size_t> seeded_sample(std::size_t size, std::size_t count, std::uint64_t seed);

std::unique_ptr<SearchStrategy> make_exhaustive_search(const SearchSpace& space);
std::unique_ptr<SearchStrategy> make_random_search(const SearchSpace& space, std::uint64_t seed);
// Starts from `seeds` (indices) and a seeded sample spread over the space, then explores neighbours
// of the best configs, those first of which a model of the trials so far expects most, with
// restarts elsewhere in the space where it expects more there.
std::unique_ptr<SearchStrategy> make_local_search(const SearchSpace& space, std::uint64_t seed,
                                                  const std::vector<std::size_t>& seeds);

}  // namespace vitune
