// tests/tuner/search_quality_test.cpp -- What a local search finds until it ends by itself, and
// after how many trials, on recorded spaces (docs/lab/2026-11-29-trials-of-a-search.md); and how
// often tunes with other seeds, on a timer that errs, end with the same winner
// (docs/lab/2026-11-30-the-same-winner-again.md).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "generator/operator.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/measure/race.h"
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

// A recorded space; times of the configs that work.
struct Recorded {
  SearchSpace space;
  std::map<Config, double> us;
  std::map<Config, int> registers;
};

std::vector<Recorded> recorded(const std::string& file, Objective objective) {
  const Recording recording = Recording::load(file);
  std::atomic<bool> stop{false};
  ReplayEvaluator replay(recording, nullptr, {}, stop);
  std::vector<Recorded> all;
  for (const RecordedProblem& problem : recording.problems) {
    Recorded one{replay.space(parse_problem(problem.text)), {}, {}};
    for (const Trial& trial : problem.trials) {
      if (trial.status != TrialStatus::kOk) continue;
      one.us[trial.config] = trial.measurement.by(objective).median_us;
      one.registers[trial.config] = trial.compile.registers;
    }
    all.push_back(std::move(one));
  }
  return all;
}

// Of all problems and seeds: the mean, and the most.
std::pair<Found, Found> searches(const std::string& file, Objective objective) {
  const std::vector<Recorded> problems = recorded(file, objective);
  Found mean, most;
  const double count = static_cast<double>(kSeedsPerProblem * problems.size());
  for (const Recorded& problem : problems) {
    for (unsigned seed = 1; seed <= kSeedsPerProblem; ++seed) {
      const Found one = search(problem.space, problem.us, seed);
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

// A tune whose timer errs: a trial by 1 %, a refined one by 0.4 %, a round of the race by 0.8 %.
class NoisyTune {
 public:
  NoisyTune(const Recorded& problem, unsigned seed)
      : problem_(problem), seed_(seed), random_(seed) {}

  Config winner() {
    search();
    const std::vector<RaceEntry> entries = finalists();
    RaceResult result;
    RaceDecision decision;
    for (int heat = 0; heat < 12 && (heat < 3 || !decision.resolved); ++heat) {
      RaceResult more = rounds(entries);
      if (heat == 0) {
        result = std::move(more);
      } else {
        add_rounds(result, more);
      }
      decision = decide_race(entries, result, Objective::kCold);
    }
    return entries[decision.winner].config;
  }

 private:
  double measured(const Config& config, double error) {
    return problem_.us.at(config) * std::exp(error * normal_(random_));
  }

  void search() {
    std::vector<std::size_t> seeds;
    if (problem_.space.preset) seeds.push_back(*problem_.space.preset);
    const auto strategy = make_local_search(problem_.space, seed_, seeds);
    while (!strategy->converged()) {
      const auto index = strategy->propose();
      if (!index) break;
      const Config& config = problem_.space.configs[*index];
      std::optional<double> us;
      if (problem_.us.contains(config)) us = seen_[config] = measured(config, 0.01);
      strategy->report(*index, us);
    }
  }

  // The best so many, measured anew, the best first.
  std::vector<std::pair<double, Config>> refined(std::vector<std::pair<double, Config>> from,
                                                 std::size_t most, double error) {
    std::ranges::sort(from);
    from.resize(std::min(from.size(), most));
    for (auto& [us, config] : from) us = measured(config, error);
    std::ranges::sort(from);
    return from;
  }

  // The best six and the default, by the stages of tuner/search/halving.cpp.
  std::vector<RaceEntry> finalists() {
    std::vector<std::pair<double, Config>> best;
    for (const auto& [config, us] : seen_) best.emplace_back(us, config);
    best = refined(best, std::max<std::size_t>(8, best.size() / 4), 0.006);
    best = refined(best, 8, 0.004);
    best.resize(std::min<std::size_t>(best.size(), 6));
    std::vector<RaceEntry> entries;
    for (const auto& [us, config] : best) entries.push_back(entry(config));
    const bool is_in = std::ranges::any_of(entries, &RaceEntry::is_default);
    if (problem_.space.preset && !is_in) {
      const Config& preset = problem_.space.configs[*problem_.space.preset];
      if (problem_.us.contains(preset)) entries.push_back(entry(preset));
    }
    return entries;
  }

  RaceEntry entry(const Config& config) const {
    const auto& preset = problem_.space.preset;
    return {config, preset && problem_.space.configs[*preset] == config, false,
            problem_.registers.at(config)};
  }

  RaceResult rounds(const std::vector<RaceEntry>& entries) {
    RaceResult result;
    for (const RaceEntry& each : entries) {
      std::vector<double>& samples = result.cold_us.emplace_back();
      for (int round = 0; round < 10; ++round) samples.push_back(measured(each.config, 0.008));
    }
    result.warm_us = result.cold_us;
    summarise_rounds(result, false);
    return result;
  }

  const Recorded& problem_;
  unsigned seed_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_{0, 1};
  std::map<Config, double> seen_;
};

struct Repeated {
  double same = 0;  // share of tunes that end with the winner that most of a problem's end with
  double loss = 0;  // of the winners to the best of the space, mean
  double worst = 0;
};

Repeated tunes(const std::string& file, Objective objective) {
  const std::vector<Recorded> problems = recorded(file, objective);
  const double count = static_cast<double>(kSeedsPerProblem * problems.size());
  Repeated all;
  for (const Recorded& problem : problems) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& [config, us] : problem.us) best = std::min(best, us);
    std::map<Config, int> winners;
    for (unsigned seed = 1; seed <= kSeedsPerProblem; ++seed) {
      const Config winner = NoisyTune(problem, seed).winner();
      ++winners[winner];
      const double loss = problem.us.at(winner) / best - 1;
      all.loss += loss / count;
      all.worst = std::max(all.worst, loss);
    }
    int most = 0;
    for (const auto& [config, times] : winners) most = std::max(most, times);
    all.same += most / count;
  }
  std::printf("the same winner: %.1f %%; loss: mean %.3f %%, worst %.2f %%\n", 100 * all.same,
              100 * all.loss, 100 * all.worst);
  return all;
}

constexpr char kWholeSpaces[] = VITUNE_SOURCE_DIR "/data/h200.recording";
// 264 to 364 configs of each space: a sample, and what a search tried.
constexpr char kSamples[] = VITUNE_SOURCE_DIR "/tests/tuner/data/h200_samples.recording";

TEST(RecordedSearchQuality, OfWholeSpacesOfAttention) {
  const auto [mean, most] = searches(kWholeSpaces, Objective::kCold);
  EXPECT_LE(mean.loss, 0.001);
  EXPECT_LE(most.loss, 0.01);
  EXPECT_LE(mean.trials, 120);
}

TEST(RecordedSearchQuality, OfSamplesOfLinearLayersNormsAndWindows) {
  const auto [mean, most] = searches(kSamples, Objective::kWarm);
  EXPECT_LE(mean.loss, 0.001);
  EXPECT_LE(most.loss, 0.01);
  EXPECT_LE(mean.trials, 110);
}

TEST(RecordedSearchQuality, TheSameWinnerAgain) {
  for (const Repeated& each :
       {tunes(kWholeSpaces, Objective::kCold), tunes(kSamples, Objective::kWarm)}) {
    EXPECT_GE(each.same, 0.9);
    EXPECT_LE(each.loss, 0.005);
    EXPECT_LE(each.worst, 0.05);  // noise ends a search early now and then
  }
}

}  // namespace
}  // namespace vitune
