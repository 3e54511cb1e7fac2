// tests/tuner/search_quality_test.cpp -- After how many trials a local search has found how much,
// on whole spaces that were recorded (docs/lab/2026-11-29-trials-of-a-search.md has the table).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "generator/operator.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/recording/recording.h"
#include "tuner/search/search.h"

namespace vitune {
namespace {

constexpr unsigned kSeeds = 8;
constexpr int kAtTheEnd = 0;  // in the place of a number of trials

// Losses to the best of the space, by the number of trials.
using Losses = std::map<int, std::vector<double>>;

void search(const SearchSpace& space, const std::map<Config, double>& times, unsigned seed,
            Losses& losses) {
  double best = std::numeric_limits<double>::infinity(), found = best;
  for (const auto& [config, us] : times) best = std::min(best, us);
  std::vector<std::size_t> seeds;
  if (space.preset) seeds.push_back(*space.preset);
  const auto strategy = make_local_search(space, seed, seeds);
  for (int trial = 1; !strategy->converged(); ++trial) {
    const auto index = strategy->propose();
    if (!index) break;
    const auto known = times.find(space.configs[*index]);
    const bool works = known != times.end();
    strategy->report(*index, works ? std::optional(known->second) : std::nullopt);
    if (works) found = std::min(found, known->second);
    if (trial == 48 || trial == 64 || trial == 96 || trial == 128) {
      losses[trial].push_back(found / best - 1);
    }
  }
  losses[kAtTheEnd].push_back(found / best - 1);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(RecordedSearchQuality, ALocalSearchIsNearTheBestAfterHalfOfItsTrials) {
  const Recording recording = Recording::load(VITUNE_SOURCE_DIR "/data/h200.recording");
  std::atomic<bool> stop{false};
  ReplayEvaluator replay(recording, nullptr, {}, stop);
  Losses losses;
  for (const RecordedProblem& problem : recording.problems) {
    const SearchSpace space = replay.space(parse_problem(problem.text));
    std::map<Config, double> times;
    for (const Trial& trial : problem.trials) {
      if (trial.status == TrialStatus::kOk) times[trial.config] = trial.measurement.cold.median_us;
    }
    for (unsigned seed = 1; seed <= kSeeds; ++seed) search(space, times, seed, losses);
  }
  for (const auto& [trials, values] : losses) {
    std::printf("%d trials: mean %.2f %%, worst %.2f %%\n", trials, 100 * mean(values),
                100 * *std::ranges::max_element(values));
  }
  ASSERT_EQ(losses[96].size(), kSeeds * recording.problems.size());
  EXPECT_LE(mean(losses[96]), 0.003);
  EXPECT_LE(*std::ranges::max_element(losses[96]), 0.01);
  EXPECT_LE(*std::ranges::max_element(losses[kAtTheEnd]), 0.005);
}

}  // namespace
}  // namespace vitune
