// tests/tuner/race_test.cpp -- Who wins a race, on invented and on simulated timers.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace vitune {
namespace {

RaceEntry entry(std::int64_t value, bool is_default = false, bool is_previous = false) {
  return {Config{{"kWarps", value}}, is_default, is_previous};
}

// One list of samples per true time, all with the same shape of noise, interleaved by round.
RaceResult result_of(const std::vector<std::vector<double>>& samples) {
  RaceResult result;
  result.cold_us = samples;
  result.warm_us = samples;
  summarise_rounds(result, false);
  return result;
}

// Rounds of contestants with the given true times under independent noise.
RaceResult noisy(const std::vector<double>& truth, double noise, int rounds, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> wobble(0, noise);
  std::vector<std::vector<double>> samples(truth.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < truth.size(); ++i) {
      samples[i].push_back(truth[i] * std::exp(wobble(random)));
    }
  }
  return result_of(samples);
}

TEST(Race, AClearLeadWinsAgainstPreviousWinnerAndDefault) {
  const auto result = noisy({10, 10.5, 11}, 0.01, 30, 1);
  const auto decision =
      decide_race({entry(1), entry(2, true), entry(3, false, true)}, result, Objective::kCold);
  EXPECT_EQ(decision.winner, 0u);
  EXPECT_EQ(decision.runner_up, 1u);
  EXPECT_TRUE(decision.resolved);
  EXPECT_NEAR(decision.lead.median, 5, 1.5);
  EXPECT_GT(decision.lead.low, 0);
}

TEST(Race, EqualsAreDecidedByPreviousWinnerThenDefaultThenText) {
  const auto result = noisy({10.00, 10.001, 10.002, 10.003}, 0.01, 60, 2);
  const Objective cold = Objective::kCold;
  EXPECT_EQ(
      decide_race({entry(4), entry(3), entry(2, true), entry(1, false, true)}, result, cold).winner,
      3u);
  EXPECT_EQ(decide_race({entry(4), entry(3), entry(2, true), entry(1)}, result, cold).winner, 2u);
  EXPECT_EQ(decide_race({entry(4), entry(3), entry(2), entry(1)}, result, cold).winner, 3u);
}

TEST(Race, OfOtherEqualsThatOfFewerRegistersWins) {
  const auto result = noisy({10.00, 10.001}, 0.01, 60, 2);
  std::vector<RaceEntry> entries = {entry(2), entry(1)};
  entries[0].registers = 128;
  entries[1].registers = 168;
  EXPECT_EQ(decide_race(entries, result, Objective::kCold).winner, 0u);
  entries[1].is_default = true;
  EXPECT_EQ(decide_race(entries, result, Objective::kCold).winner, 1u);
}

// However sure it is: another tune may not have met the faster one.
TEST(Race, ALeadOfHalfAPercentIsATieAndOneOfTwoIsNot) {
  const std::vector<RaceEntry> entries = {entry(2), entry(1, true, true)};
  const auto half = decide_race(entries, noisy({10.0, 10.05}, 0.002, 60, 3), Objective::kCold);
  EXPECT_EQ(half.winner, 1u);
  EXPECT_TRUE(half.resolved);
  const auto two = decide_race(entries, noisy({10.0, 10.2}, 0.002, 60, 3), Objective::kCold);
  EXPECT_EQ(two.winner, 0u);
  EXPECT_TRUE(two.resolved);
}

TEST(Race, TheObjectiveDecidesWhichTimingsCount) {
  RaceResult result = noisy({10, 11}, 0.001, 30, 4);
  std::swap(result.warm_us[0], result.warm_us[1]);
  summarise_rounds(result, false);
  EXPECT_EQ(decide_race({entry(1), entry(2)}, result, Objective::kCold).winner, 0u);
  EXPECT_EQ(decide_race({entry(1), entry(2)}, result, Objective::kWarm).winner, 1u);
}

TEST(Race, EqualsByTheObjectiveAreDecidedByTheOtherOneIfThatIsClear) {
  RaceResult result = noisy({10.00, 10.001}, 0.005, 60, 6);
  for (double& us : result.warm_us[0]) us *= 1.04;
  summarise_rounds(result, false);
  const Objective cold = Objective::kCold;
  EXPECT_EQ(decide_race({entry(1, true, true), entry(2)}, result, cold).winner, 1u);
  EXPECT_EQ(decide_race({entry(2), entry(1)}, result, cold).winner, 1u);
  // Less than a tie's width says nothing.
  for (double& us : result.warm_us[0]) us *= 1.005 / 1.04;
  summarise_rounds(result, false);
  EXPECT_EQ(decide_race({entry(1, true, true), entry(2)}, result, cold).winner, 0u);
}

TEST(Race, AWideIntervalAsksForMoreRounds) {
  RaceResult result = noisy({10, 10.02}, 0.2, 30, 5);
  EXPECT_FALSE(decide_race({entry(1), entry(2)}, result, Objective::kCold).resolved);
  const auto more = noisy({10, 10.02}, 0.2, 30, 6);
  add_rounds(result, more);
  EXPECT_EQ(result.cold_us[0].size(), 60u);
  EXPECT_EQ(result.measurements[0].cold.samples, 60);
}

TEST(Race, WithoutSamplesTheIntervalsDecide) {
  const auto timing = [](double us) {
    return Measurement{{us, us * 0.995, us * 1.005, 20}, {us, us * 0.995, us * 1.005, 20}, false};
  };
  RaceResult result;
  result.measurements = {timing(10), timing(10.05), timing(12)};
  const auto decision = decide_race({entry(2), entry(1, true), entry(3)}, result, Objective::kCold);
  EXPECT_EQ(decision.winner, 1u);  // an equal of the fastest, and the default
  EXPECT_EQ(decision.runner_up, 0u);
  EXPECT_NEAR(decision.lead.median, -0.5, 0.01);
  EXPECT_LT(decision.lead.low, 0);
}

TEST(Race, OneContestantWinsAlone) {
  const auto decision = decide_race({entry(1)}, noisy({10}, 0.01, 30, 7), Objective::kCold);
  EXPECT_EQ(decision.winner, 0u);
  EXPECT_FALSE(decision.runner_up.has_value());
  EXPECT_TRUE(decision.resolved);
}

// A timer with everything that real ones have: a ramp while clocks rise, drift, steps, rare
// outliers that hit one sample, and noise.
class RealisticTimer {
 public:
  explicit RealisticTimer(std::uint64_t seed) : random_(seed) {
    ramp_ = 0.1 * uniform();
    drift_ = 0.02 * (uniform() - 0.5);
    step_at_ = 200 * uniform();
    step_ = 0.05 * (uniform() - 0.3);
  }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  double measure(double truth) {
    const double t = time_++;
    double clock = 1 + ramp_ * std::exp(-t / 20) + drift_ * t / 100;
    if (t > step_at_) clock += step_;
    double us = truth * clock * (1 + 0.008 * std::normal_distribution<double>(0, 1)(random_));
    if (uniform() < 0.02) us *= 1.2 + uniform();
    return us;
  }

 private:
  std::mt19937_64 random_;
  double ramp_, drift_, step_at_, step_;
  double time_ = 0;
};

// A tie is one percent wide, and a timer that noisy errs by a fifth of that.
TEST(Race, TheWinnerIsHardlyMoreThanATieFromTheTruthOnANoisyTimer) {
  constexpr int kRuns = 2000;
  constexpr int kRounds = 30, kHeats = 4;
  int good = 0;
  for (int run = 0; run < kRuns; ++run) {
    RealisticTimer timer(static_cast<std::uint64_t>(run) + 1);
    std::vector<double> truth;
    std::vector<RaceEntry> entries;
    for (int i = 0; i < 7; ++i) {
      truth.push_back(20 * (1 + 0.05 * timer.uniform()));
      entries.push_back(entry(i, i == 5, i == 6));
    }
    RaceDecision decision;
    RaceResult total;
    for (int heat = 0; heat < kHeats; ++heat) {
      std::vector<std::vector<double>> samples(truth.size());
      for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < truth.size(); ++i)
          samples[i].push_back(timer.measure(truth[i]));
      }
      const RaceResult result = result_of(samples);
      if (heat == 0)
        total = result;
      else
        add_rounds(total, result);
      decision = decide_race(entries, total, Objective::kCold);
      if (decision.resolved) break;
    }
    const double best = *std::min_element(truth.begin(), truth.end());
    good += truth[decision.winner] <= 1.012 * best;
  }
  EXPECT_GE(good, kRuns * 99 / 100);
}

}  // namespace
}  // namespace vitune
