// tests/tuner/search_test.cpp -- The space as strategies see it, and how fast they find the best.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "tests/tuner/synthetic_space.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

using test::synthetic_cost;
using test::synthetic_space;
using test::trials_to_reach;

constexpr int kSeeds = 50;

SearchSpace grid() {
  return SearchSpace(
      ParameterSpace({{"kA", {1, 2, 3, 4}, ""}, {"kB", {10, 20}, ""}},
                     {{"not (2, 10)", [](const Config& config) -> std::optional<std::string> {
                         if (config.find("kA") == 2 && config.find("kB") == 10) return "no";
                         return std::nullopt;
                       }}}));
}

std::set<Config> neighbours_of(const SearchSpace& space, const Config& config) {
  std::set<Config> result;
  for (const std::size_t index : space.neighbours[*space.find(config)])
    result.insert(space.configs[index]);
  return result;
}

TEST(SearchSpace, FindsEveryConfigAndNoOther) {
  const SearchSpace space = grid();
  ASSERT_EQ(space.size(), 7u);
  for (std::size_t i = 0; i < space.size(); ++i) EXPECT_EQ(space.find(space.configs[i]), i);
  EXPECT_FALSE(space.find(Config{{"kA", 2}, {"kB", 10}}));
  EXPECT_FALSE(space.find(Config{{"kA", 1}}));
}

TEST(SearchSpace, NeighboursStepOverWhatConstraintsExclude) {
  const SearchSpace space = grid();
  EXPECT_EQ(neighbours_of(space, Config{{"kA", 1}, {"kB", 10}}),
            (std::set<Config>{{{"kA", 3}, {"kB", 10}}, {{"kA", 1}, {"kB", 20}}}));
}

TEST(SearchSpace, ValuesOfACategoricalParameterAreAllNeighbours) {
  Parameter parameter{"kMode", {0, 1, 2, 3}, ""};
  parameter.categorical = true;
  const SearchSpace space({parameter},
                          {Config{{"kMode", 0}}, Config{{"kMode", 1}}, Config{{"kMode", 3}}});
  EXPECT_EQ(neighbours_of(space, Config{{"kMode", 0}}).size(), 2u);
}

TEST(SearchSpace, NeighboursAreMutual) {
  const SearchSpace space = synthetic_space();
  for (std::size_t i = 0; i < space.size(); ++i) {
    for (const std::size_t j : space.neighbours[i]) {
      ASSERT_TRUE(std::count(space.neighbours[j].begin(), space.neighbours[j].end(), i) == 1);
    }
  }
}

TEST(SearchSpace, RefusesConfigsThatAreNotOfItsParameters) {
  const Parameter parameter{"kA", {1, 2}, ""};
  EXPECT_THROW(SearchSpace({parameter}, {Config{{"kA", 3}}}), Error);
  EXPECT_THROW(SearchSpace({parameter}, {Config{{"kA", 1}}, Config{{"kA", 1}}}), Error);
  EXPECT_THROW(SearchSpace({parameter}, {Config{{"kB", 1}}}), Error);
}

TEST(SearchSpace, HoldsTheProposalsThatAreInTheSpace) {
  Parameter open{"kOpen", {0}, ""};
  open.open = true;
  const ParameterSpace parameters(
      {{"kA", {1, 2}, ""}, open},
      {{"kOpen with kA = 2 alone",
        [](const Config& config) -> std::optional<std::string> {
          if ((config.find("kOpen").value_or(0) != 0) == (config.at("kA") == 2))
            return std::nullopt;
          return "no";
        },
        {"kA", "kOpen"}}});
  const Config good{{"kA", 2}, {"kOpen", 9}}, better{{"kA", 2}, {"kOpen", -4}};
  const SearchSpace space(parameters, {good, {{"kA", 1}, {"kOpen", 9}}, better, good});
  ASSERT_EQ(space.size(), 3u);
  ASSERT_EQ(space.proposed.size(), 2u);
  EXPECT_EQ(space.configs[space.proposed[0]], good);
  EXPECT_EQ(space.configs[space.proposed[1]], better);
  EXPECT_TRUE(space.find(Config{{"kA", 1}}));
  EXPECT_EQ(neighbours_of(space, good), std::set<Config>{better});
}

TEST(Search, EveryStrategyProposesEachConfigOnce) {
  const SearchSpace space = grid();
  for (int which = 0; which < 3; ++which) {
    auto strategy = which == 0   ? make_exhaustive_search(space)
                    : which == 1 ? make_random_search(space, 3)
                                 : make_local_search(space, 3, {0, 0, 6});
    std::set<std::size_t> proposed;
    while (const auto index = strategy->propose()) {
      EXPECT_TRUE(proposed.insert(*index).second) << "strategy " << which;
      // Every other one fails.
      strategy->report(*index, *index % 2 == 0
                                   ? std::optional<double>(10.0 + static_cast<double>(*index))
                                   : std::nullopt);
    }
    EXPECT_EQ(proposed.size(), space.size()) << "strategy " << which;
  }
}

TEST(Search, AnEmptySpaceEndsAtOnce) {
  const SearchSpace space({{"kA", {1}, ""}}, {});
  EXPECT_FALSE(make_exhaustive_search(space)->propose());
  EXPECT_FALSE(make_random_search(space, 1)->propose());
  EXPECT_FALSE(make_local_search(space, 1, {})->propose());
}

TEST(Search, ASpaceWhereEverythingFailsIsWalkedToTheEnd) {
  const SearchSpace space = grid();
  const auto strategy = make_local_search(space, 1, {});
  std::size_t count = 0;
  while (const auto index = strategy->propose()) {
    strategy->report(*index, std::nullopt);
    ++count;
    EXPECT_FALSE(strategy->converged());
  }
  EXPECT_EQ(count, space.size());
}

TEST(Search, RandomDependsOnTheSeedAndOnNothingElse) {
  const SearchSpace space = synthetic_space();
  const auto first = [&](std::uint64_t seed) {
    const auto strategy = make_random_search(space, seed);
    std::vector<std::size_t> indices;
    for (int i = 0; i < 20; ++i) indices.push_back(*strategy->propose());
    return indices;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(Search, LocalStartsFromItsSeeds) {
  const SearchSpace space = synthetic_space();
  const auto strategy = make_local_search(space, 1, {42, 7});
  EXPECT_EQ(strategy->propose(), 42u);
  EXPECT_EQ(strategy->propose(), 7u);
}

TEST(Search, LocalToleratesManyTrialsUnderWayAndResultsOutOfOrder) {
  const SearchSpace space = synthetic_space();
  const auto strategy = make_local_search(space, 5, {0});
  std::set<std::size_t> proposed;
  std::vector<std::size_t> flying;
  double best = INFINITY, truth = INFINITY;
  for (std::size_t i = 0; i < space.size(); ++i)
    truth = std::min(truth, synthetic_cost(space, i, 3).value_or(INFINITY));
  for (int step = 0; step < 400; ++step) {
    const auto index = strategy->propose();
    ASSERT_TRUE(index && proposed.insert(*index).second);
    flying.push_back(*index);
    if (flying.size() < 16) continue;
    const std::size_t pick = static_cast<std::size_t>(step * 7) % flying.size();
    const auto cost = synthetic_cost(space, flying[pick], 3);
    if (cost) best = std::min(best, *cost);
    strategy->report(flying[pick], cost);
    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  EXPECT_GE(truth / best, 0.97);
}

// Share of the space after which half of kSeeds local searches have found 97 % of the optimum.
double median_share(const SearchSpace& space,
                    const std::function<std::optional<double>(std::size_t)>& cost,
                    const std::vector<std::size_t>& seeds) {
  std::vector<double> shares;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const auto strategy = make_local_search(space, static_cast<std::uint64_t>(seed), seeds);
    const std::size_t trials = trials_to_reach(*strategy, 0.97, cost, space.size());
    shares.push_back(static_cast<double>(trials) / static_cast<double>(space.size()));
  }
  std::nth_element(shares.begin(), shares.begin() + kSeeds / 2, shares.end());
  return shares[kSeeds / 2];
}

TEST(Search, LocalReaches97PercentOfTheOptimumAfterAFifthOfASyntheticSpace) {
  const SearchSpace space = synthetic_space();
  for (const std::uint64_t landscape : {1u, 2u, 5u}) {
    const auto cost = [&](std::size_t index) { return synthetic_cost(space, index, landscape); };
    EXPECT_LE(median_share(space, cost, {}), 0.2) << "landscape " << landscape;
  }
}

TEST(Search, LocalConvergesBeforeAFifthAndIsGoodThen) {
  const SearchSpace space = synthetic_space();
  int good = 0;
  constexpr int kRuns = 10;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    const auto strategy = make_local_search(space, seed, {});
    double best = INFINITY, truth = INFINITY;
    for (std::size_t i = 0; i < space.size(); ++i)
      truth = std::min(truth, synthetic_cost(space, i, 6).value_or(INFINITY));
    std::size_t trials = 0;
    while (!strategy->converged() && trials < space.size() / 5) {
      const auto index = strategy->propose();
      ASSERT_TRUE(index);
      ++trials;
      const auto cost = synthetic_cost(space, *index, 6);
      if (cost) best = std::min(best, *cost);
      strategy->report(*index, cost);
    }
    EXPECT_TRUE(strategy->converged());
    good += truth / best >= 0.97;
  }
  EXPECT_GE(good, 8);
}

// The same on what was measured on a real device. Pruned candidates count as visited.
TEST(Search, LocalReaches97PercentOfTheOptimumAfterAFifthOfEachRecordedSpace) {
  const std::filesystem::path path =
      std::filesystem::path(VITUNE_SOURCE_DIR) / "data" / "h200.recording";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no recording at " << path;
  const Recording recording = Recording::load(path);
  for (const RecordedProblem& problem : recording.problems) {
    std::vector<Parameter> parameters;
    for (const std::string& name : problem.parameters) {
      std::set<std::int64_t> values;
      for (const Trial& trial : problem.trials) values.insert(trial.config.at(name));
      parameters.push_back({name, {values.begin(), values.end()}, ""});
    }
    std::vector<Config> configs;
    for (const Trial& trial : problem.trials) configs.push_back(trial.config);
    const SearchSpace space(parameters, configs);
    const auto cost = [&](std::size_t index) -> std::optional<double> {
      const Trial& trial = problem.trials[index];
      if (trial.status != TrialStatus::kOk) return std::nullopt;
      return trial.measurement.cold.median_us;
    };
    EXPECT_LE(median_share(space, cost, {}), 0.2) << problem.text;
  }
}

}  // namespace
}  // namespace vitune
