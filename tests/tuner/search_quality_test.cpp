// tests/tuner/search_quality_test.cpp -- What a local search finds until it ends by itself, and
// after how many trials, on recorded spaces (docs/lab/2026-11-29-trials-of-a-search.md).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/operator.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/recording/recording.h"
#include "tuner/search/search.h"

namespace vitune {
namespace {

constexpr unsigned kSeedsPerProblem = 8;

struct Found {
  double loss = 0;  // to the best of the space
  double trials = 0;
};

Found search(const SearchSpace& space, const std::map<Config, double>& times, unsigned seed) {
  double best = std::numeric_limits<double>::infinity(), found = best;
  for (const auto& [config, us] : times) best = std::min(best, us);
  std::vector<std::size_t> seeds;
  if (space.preset) seeds.push_back(*space.preset);
  const auto strategy = make_local_search(space, seed, seeds);
  int trials = 0;
  while (!strategy->converged()) {
    const auto index = strategy->propose();
    if (!index) break;
    ++trials;
    const auto known = times.find(space.configs[*index]);
    const bool works = known != times.end();
    strategy->report(*index, works ? std::optional(known->second) : std::nullopt);
    if (works) found = std::min(found, known->second);
  }
  return {found / best - 1, static_cast<double>(trials)};
}

// Of all problems and seeds: the mean, and the most.
std::pair<Found, Found> searches(const std::string& file, Objective objective) {
  const Recording recording = Recording::load(file);
  std::atomic<bool> stop{false};
  ReplayEvaluator replay(recording, nullptr, {}, stop);
  Found mean, most;
  const double count = static_cast<double>(kSeedsPerProblem * recording.problems.size());
  for (const RecordedProblem& problem : recording.problems) {
    const SearchSpace space = replay.space(parse_problem(problem.text));
    std::map<Config, double> times;
    for (const Trial& trial : problem.trials) {
      if (trial.status != TrialStatus::kOk) continue;
      times[trial.config] = trial.measurement.by(objective).median_us;
    }
    for (unsigned seed = 1; seed <= kSeedsPerProblem; ++seed) {
      const Found one = search(space, times, seed);
      mean.loss += one.loss / count;
      mean.trials += one.trials / count;
      most.loss = std::max(most.loss, one.loss);
      most.trials = std::max(most.trials, one.trials);
    }
  }
  std::printf("loss: mean %.3f %%, worst %.2f %%; trials: mean %.0f, most %.0f\n", 100 * mean.loss,
              100 * most.loss, mean.trials, most.trials);
  return {mean, most};
}

TEST(RecordedSearchQuality, OfWholeSpacesOfAttention) {
  const auto [mean, most] = searches(VITUNE_SOURCE_DIR "/data/h200.recording", Objective::kCold);
  EXPECT_LE(mean.loss, 0.001);
  EXPECT_LE(most.loss, 0.01);
  EXPECT_LE(mean.trials, 120);
}

// 264 to 364 configs of each space: a sample, and what a search tried.
TEST(RecordedSearchQuality, OfSamplesOfLinearLayersNormsAndWindows) {
  const auto [mean, most] =
      searches(VITUNE_SOURCE_DIR "/tests/tuner/data/h200_samples.recording", Objective::kWarm);
  EXPECT_LE(mean.loss, 0.001);
  EXPECT_LE(most.loss, 0.01);
  EXPECT_LE(mean.trials, 110);
}

}  // namespace
}  // namespace vitune
