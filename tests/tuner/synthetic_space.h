// tests/tuner/synthetic_space.h -- Invented landscapes that behave like kernel timings.
//
// Effects of single parameters, interactions of pairs and triples, plateaus (a parameter that does
// nothing for some values of another), cliffs, regions that fail, and a little ruggedness.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/search/search.h"

namespace vitune::test {

// A number in [0, 1) that depends on nothing but its arguments.
inline double noise(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0,
                    std::uint64_t d = 0) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u;
  for (const std::uint64_t part : {a, b, c, d}) {
    x ^= part + 0x9E3779B97F4A7C15u + (x << 6) + (x >> 2);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1p-53;
}

inline std::vector<Parameter> synthetic_parameters() {
  return {{"kBlockN", {16, 32, 48, 64, 80, 96, 112, 128}, ""},
          {"kHeadsPerCta", {1, 2, 4}, ""},
          {"kKeysConstant", {0, 1}, ""},
          {"kMinCtas", {1, 2, 3, 4}, ""},
          {"kPersistent", {0, 1}, ""},
          {"kQInRegisters", {0, 1}, ""},
          {"kRowTilesPerWarp", {1, 2, 3}, ""},
          {"kStages", {1, 2, 3}, ""},
          {"kWarps", {1, 2, 4, 8}, ""}};
}

// About 4,000 configs that obey a shared memory rule and a divisibility rule.
inline SearchSpace synthetic_space() {
  const auto parameters = synthetic_parameters();
  std::vector<Config> configs;
  Config config;
  const std::function<void(std::size_t)> choose = [&](std::size_t p) {
    if (p == parameters.size()) {
      const auto at = [&](const char* name) { return config.at(name); };
      const bool fits = at("kBlockN") * at("kStages") + 16 * at("kWarps") * at("kRowTilesPerWarp") +
                            64 * at("kHeadsPerCta") <=
                        340;
      const bool useful = at("kWarps") * at("kRowTilesPerWarp") * at("kMinCtas") <= 12;
      const bool persistent = at("kPersistent") == 0 || at("kHeadsPerCta") == 1;
      const bool wide = at("kQInRegisters") == 0 || at("kRowTilesPerWarp") <= 2;
      if (fits && useful && persistent && wide) configs.push_back(config);
      return;
    }
    for (const std::int64_t value : parameters[p].values) {
      config.set(parameters[p].name, value);
      choose(p + 1);
    }
  };
  choose(0);
  return SearchSpace(parameters, configs);
}

// Microseconds of a config, or nothing where it fails; another landscape for each `seed`.
inline std::optional<double> synthetic_cost(const SearchSpace& space, std::size_t index,
                                            std::uint64_t seed) {
  const std::string& x = space.coordinates[index];
  const std::size_t count = x.size();
  const auto at = [&](std::size_t p) { return static_cast<std::uint64_t>(x[p]); };
  double log_cost = 3.0;
  for (std::size_t p = 0; p < count; ++p) {
    const double values = static_cast<double>(space.parameters[p].values.size());
    const double optimum = noise(seed, 1, p), strength = noise(seed, 2, p);
    const double position = static_cast<double>(x[p]) / std::max(1.0, values - 1);
    log_cost += 1.2 * strength * strength * (position - optimum) * (position - optimum);
    for (std::size_t q = 0; q < p; ++q) {
      const double strength_pq = noise(seed, 3, p, q);
      if (strength_pq < 0.6) continue;
      // Coarse cells: a pair's effect is a plateau with steps.
      log_cost += 0.25 * noise(seed, 4, p * 16 + q, at(p) / 2, at(q));
      if (strength_pq > 0.9) log_cost += 0.3 * std::abs(position - noise(seed, 5, q, at(q)));
    }
  }
  const std::uint64_t a =
      static_cast<std::uint64_t>(noise(seed, 6, 0) * static_cast<double>(count));
  const std::uint64_t b = (a + 3) % count, c = (a + 5) % count;
  log_cost += 0.15 * noise(seed, 7, at(a), at(b), at(c));
  log_cost += 0.02 * noise(seed, 8, index);
  if (noise(seed, 9, at(a), at(b)) > 0.85) return std::nullopt;
  return std::exp(log_cost);
}

// Trials until a strategy has proposed a config whose cost is at most best / `share`.
inline std::size_t trials_to_reach(SearchStrategy& strategy, double share,
                                   const std::function<std::optional<double>(std::size_t)>& cost,
                                   std::size_t size) {
  double best = INFINITY;
  for (std::size_t i = 0; i < size; ++i) {
    if (const auto value = cost(i)) best = std::min(best, *value);
  }
  std::size_t trials = 0;
  while (const auto index = strategy.propose()) {
    ++trials;
    const auto value = cost(*index);
    if (value && best / *value >= share) return trials;
    strategy.report(*index, value);
  }
  return trials + 1;
}

}  // namespace vitune::test
