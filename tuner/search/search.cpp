// tuner/search/search.cpp -- The space as strategies see it, and the two strategies that learn
// nothing.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/search/search.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <unordered_map>

#include "core/error.h"

namespace vitune {
namespace {

// Proposes a fixed sequence of indices.
class SequenceSearch : public SearchStrategy {
 public:
  explicit SequenceSearch(std::vector<std::size_t> order) : order_(std::move(order)) {}

  std::optional<std::size_t> propose() override {
    if (next_ == order_.size()) return std::nullopt;
    return order_[next_++];
  }
  void report(std::size_t, std::optional<double>) override {}

 private:
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
};

// The proposals that are in the space, each once; they come from outside.
std::vector<Config> usable(const ParameterSpace& space, const std::vector<Config>& proposals) {
  std::vector<Config> kept;
  for (const Config& proposal : proposals) {
    if (space.explain(proposal)) continue;
    if (std::find(kept.begin(), kept.end(), proposal) == kept.end()) kept.push_back(proposal);
  }
  return kept;
}

// Open parameters with the values that configs give them.
std::vector<Parameter> with_values_of(std::vector<Parameter> parameters,
                                      const std::vector<Config>& configs) {
  for (Parameter& parameter : parameters) {
    if (!parameter.open) continue;
    std::set<std::int64_t> values = {0};
    for (const Config& config : configs) values.insert(config.find(parameter.name).value_or(0));
    parameter.values.assign(values.begin(), values.end());
  }
  return parameters;
}

std::vector<Config> joined(std::vector<Config> configs, const std::vector<Config>& more) {
  configs.insert(configs.end(), more.begin(), more.end());
  return configs;
}

std::vector<std::size_t> ascending(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// Where each value of `config` stands among its parameter's values.
std::string positions(const std::vector<Parameter>& parameters, const Config& config) {
  std::string result;
  for (const Parameter& parameter : parameters) {
    const std::int64_t value = config.find(parameter.name).value_or(0);
    const auto at = std::find(parameter.values.begin(), parameter.values.end(), value);
    const auto position = at - parameter.values.begin();
    if (at == parameter.values.end() || position > 127) {
      throw Error(ErrorCode::kUsage, parameter.name + "=" + std::to_string(value) +
                                         " is not among the first 128 values of its parameter");
    }
    result.push_back(static_cast<char>(position));
  }
  return result;
}

}  // namespace

SearchSpace::SearchSpace(const ParameterSpace& space, const std::vector<Config>& proposals)
    : SearchSpace(with_values_of(space.parameters(), usable(space, proposals)),
                  joined(space.enumerate(), usable(space, proposals))) {
  for (const Config& proposal : usable(space, proposals)) proposed.push_back(*find(proposal));
}

SearchSpace::SearchSpace(std::vector<Parameter> space_parameters, std::vector<Config> space_configs)
    : parameters(std::move(space_parameters)), configs(std::move(space_configs)) {
  index_configs();
  link_neighbours();
}

std::optional<std::size_t> SearchSpace::find(const Config& config) const {
  const auto at = std::lower_bound(
      sorted_.begin(), sorted_.end(), config,
      [this](std::size_t position, const Config& wanted) { return configs[position] < wanted; });
  if (at == sorted_.end() || configs[*at] != config) return std::nullopt;
  return *at;
}

void SearchSpace::index_configs() {
  sorted_ = ascending(configs.size());
  std::sort(sorted_.begin(), sorted_.end(),
            [this](std::size_t a, std::size_t b) { return configs[a] < configs[b]; });
  for (std::size_t i = 1; i < sorted_.size(); ++i) {
    if (configs[sorted_[i - 1]] == configs[sorted_[i]]) {
      throw Error(ErrorCode::kUsage,
                  "the config " + configs[sorted_[i]].text() + " is there twice");
    }
  }
  coordinates.reserve(configs.size());
  for (const Config& config : configs) coordinates.push_back(positions(parameters, config));
}

void SearchSpace::link_neighbours() {
  std::unordered_map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < coordinates.size(); ++i) at.emplace(coordinates[i], i);
  neighbours.resize(configs.size());
  // The next config from `start` along parameter `p` by `step`, past values that constraints
  // exclude.
  const auto next = [&](const std::string& start, std::size_t p, int step) {
    std::string moved = start;
    const int count = static_cast<int>(parameters[p].values.size());
    for (int value = start[p] + step; value >= 0 && value < count; value += step) {
      moved[p] = static_cast<char>(value);
      const auto found = at.find(moved);
      if (found != at.end()) return std::optional(found->second);
    }
    return std::optional<std::size_t>();
  };
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (const int step : {-1, 1}) {
        auto found = next(coordinates[i], p, step);
        while (found) {
          neighbours[i].push_back(*found);
          if (!parameters[p].categorical) break;
          found = next(coordinates[*found], p, step);
        }
      }
    }
  }
}

std::vector<std::size_t> seeded_sample(std::size_t size, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> indices = ascending(size);
  if (count >= size) return indices;
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(indices[i], indices[i + random() % (size - i)]);
  }
  indices.resize(count);
  std::ranges::sort(indices);
  return indices;
}

std::unique_ptr<SearchStrategy> make_exhaustive_search(const SearchSpace& space) {
  return std::make_unique<SequenceSearch>(ascending(space.size()));
}

std::unique_ptr<SearchStrategy> make_random_search(const SearchSpace& space, std::uint64_t seed) {
  std::vector<std::size_t> order = ascending(space.size());
  std::mt19937_64 random(seed);
  // Not std::shuffle, whose result differs between standard libraries.
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return std::make_unique<SequenceSearch>(std::move(order));
}

}  // namespace vitune
