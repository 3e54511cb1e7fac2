// tuner/search.h -- Search strategies: which config to try next, given what is known so far.
//
// Operator-neutral. A strategy sees the configs of a space by index and is told the cost of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  // What became of a proposal: its cost in microseconds, or nothing if it failed or was pruned.
  virtual void report(std::size_t index, std::optional<double> cost) = 0;
};

// The configs of one space and which of them are neighbours.
struct SearchSpace {
  std::vector<Config> configs;
  std::vector<std::vector<std::size_t>> neighbours;
  explicit SearchSpace(const ParameterSpace& space);
  std::optional<std::size_t> find(const Config& config) const;
};

std::unique_ptr<SearchStrategy> make_exhaustive_search(const SearchSpace& space);
std::unique_ptr<SearchStrategy> make_random_search(const SearchSpace& space, std::uint64_t seed);
// Starts from `seeds` (indices) and a seeded sample spread over the space, then explores neighbours
// of the best configs, best first.
std::unique_ptr<SearchStrategy> make_local_search(const SearchSpace& space, std::uint64_t seed,
                                                  const std::vector<std::size_t>& seeds);

}  // namespace vitune
