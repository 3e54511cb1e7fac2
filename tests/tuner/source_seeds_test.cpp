// tests/tuner/source_seeds_test.cpp -- Winners of other devices, at which a search on a GPU that
// nobody tuned begins.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/source_seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "generator/attention/kernel_spec.h"
#include "tests/generator/near_configs.h"
#include "tests/like_devices.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/loop/tuner.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::h100_device;
using testing_support::h200_device;

constexpr const char* kVit = "bf16 b=32 h=12 n=197 d=64";
constexpr const char* kNear = "bf16 b=32 h=12 n=198 d=64";
constexpr const char* kFar = "bf16 b=2 h=12 n=784 d=64";

ProblemKey key_of(const std::string& text) {
  return {"attention", AttentionProblem::parse(text).text()};
}

DeviceInfo a100_device() {
  DeviceInfo device = architecture_limits("sm_80").value();
  device.sm_count = 108;
  device.l2_bytes = 41943040;
  device.name = "NVIDIA A100";
  return device;
}

Winner winner_of(const Config& config, Objective objective = Objective::kCold) {
  Winner winner;
  winner.config = config;
  winner.objective = objective;
  winner.measurement.cold = winner.measurement.warm = {20, 19.9, 20.1, 20};
  winner.compiler_version = "13.0";
  winner.tuned_at = "2026-01-01T00:00:00Z";
  return winner;
}

class SourceSeedsTest : public ::testing::Test {
 protected:
  void put(const DeviceInfo& device, const std::string& text, const Winner& winner) {
    store_.user().promote(device, key_of(text), winner, nullptr);
  }
  std::vector<Config> seeds(const DeviceInfo& device, const std::string& text) {
    SourceSeeds sources(device, Objective::kCold, store_, [this](LogLevel, std::string_view line) {
      messages_ += std::string(line) + "\n";
    });
    return sources.of(AttentionProblem::parse(text));
  }
  // Other than the default: the `place`-th further one of a device.
  static Config other(const std::string& text, std::size_t place = 1,
                      const DeviceInfo& device = h200_device()) {
    return default_attention_configs(AttentionProblem::parse(text), device).at(place);
  }

  LayeredStore store_{Store::in_memory(), nullptr};
  std::string messages_;
};

TEST_F(SourceSeedsTest, WhatWonTheProblemElsewhereComesBeforeWhatWonNearOnes) {
  put(h100_device(), kNear, winner_of(other(kNear, 2)));
  put(h100_device(), kVit, winner_of(other(kVit, 1)));
  EXPECT_THAT(seeds(h200_device(), kVit), ElementsAre(other(kVit, 1), other(kNear, 2)));
  EXPECT_THAT(messages_, HasSubstr("searched from the winners of NVIDIA H100 (sm_90, 132 SMs)"));
}

TEST_F(SourceSeedsTest, TheNearestProblemsComeFirstAndFew) {
  put(h100_device(), kFar, winner_of(other(kFar, 1)));
  put(h100_device(), kNear, winner_of(other(kNear, 2)));
  const auto found = seeds(h200_device(), kVit);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], other(kNear, 2));

  const ParameterSpace space = attention_space(AttentionProblem::parse(kVit), h200_device());
  int rows = 198;
  for (const Config& config : test::configs_near(space, other(kVit))) {
    put(h100_device(), "bf16 b=32 h=12 n=" + std::to_string(++rows) + " d=64", winner_of(config));
  }
  EXPECT_LE(seeds(h200_device(), kVit).size(), 8u);
}

TEST_F(SourceSeedsTest, ADeviceWithWinnersOfTheClassTakesTheSameProblemsWinnersAlone) {
  put(h200_device(), kFar, winner_of(other(kFar, 1)));
  put(h100_device(), kNear, winner_of(other(kNear, 2)));
  EXPECT_THAT(seeds(h200_device(), kVit), IsEmpty());
  put(h100_device(), kVit, winner_of(other(kVit, 1)));
  EXPECT_THAT(seeds(h200_device(), kVit), ElementsAre(other(kVit, 1)));
}

TEST_F(SourceSeedsTest, TheMostAlikeDeviceProposesFirst) {
  DeviceInfo small_cache = h100_device("less L2");
  small_cache.l2_bytes /= 4;
  put(small_cache, kVit, winner_of(other(kVit, 1)));
  put(h100_device(), kVit, winner_of(other(kVit, 2)));
  EXPECT_THAT(seeds(h200_device(), kVit), ElementsAre(other(kVit, 2), other(kVit, 1)));
}

// They are measured before anything is said of them.
TEST_F(SourceSeedsTest, AnotherArchitectureProposesWhatIsInTheSpace) {
  const ParameterSpace there = attention_space(AttentionProblem::parse(kVit), a100_device());
  const Config ampere = other(kVit, 1, a100_device());
  put(h200_device(), kVit,
      winner_of(default_attention_config(AttentionProblem::parse(kVit), h200_device())));
  put(h200_device(), kNear, winner_of(ampere));
  for (const Config& config : seeds(a100_device(), kVit)) {
    EXPECT_FALSE(there.explain(config)) << config.text();
  }
  put(h100_device(), kVit, winner_of(ampere));
  EXPECT_THAT(seeds(a100_device(), kVit), ::testing::Contains(ampere));
}

TEST_F(SourceSeedsTest, UnverifiedRowsAndOtherVersionsTextsProposeNothing) {
  Winner row = winner_of(other(kVit));
  row.verified = false;
  put(h100_device(), kVit, row);
  row.verified = true;
  store_.user().promote(h100_device(), {"attention", "attention of the future"}, row, nullptr);
  store_.user().promote(h100_device(), {"of_the_future", "of_the_future x=1"}, row, nullptr);
  EXPECT_THAT(seeds(h200_device(), kVit), IsEmpty());
  EXPECT_EQ(messages_, "");
}

// A space of which nobody would try the best among the first.
class SeededSearchTest : public SourceSeedsTest {
 protected:
  SeededSearchTest() {
    const AttentionProblem problem = AttentionProblem::parse(kVit);
    recording_.device = h200_device("NVIDIA H200 that nobody tuned");
    recording_.compiler_version = "nvrtc 13.0 0123456789ab";
    RecordedProblem recorded{kVit, problem.text(), {}, {}};
    for (const Config& config : attention_space(problem, recording_.device).enumerate()) {
      Trial trial;
      trial.config = config;
      trial.origin = Origin::kReplayed;
      const double us =
          config == best() ? 10 : 20 + 0.001 * static_cast<double>(recorded.trials.size() % 97);
      trial.measurement.cold = trial.measurement.warm = {us, us, us, 20};
      recorded.trials.push_back(trial);
    }
    for (const auto& [name, value] : best()) recorded.parameters.push_back(name);
    recording_.put(std::move(recorded));
    options_.problems.emplace_back();
    options_.problems[0].name = kVit;
    options_.problems[0].problem = AttentionProblem::parse(kVit);
    options_.budget.trials = 4;
  }
  static Config best() { return other(kVit, 2); }
  Config found() {
    std::atomic<bool> stop{false};
    ReplayEvaluator replay(recording_, nullptr, {}, stop);
    const TuneReport report = tune_with(replay, options_, store_, {}, {}, stop);
    return report.outcomes.at(0).winner.value().config;
  }

  Recording recording_;
  TuneOptions options_;
};

TEST_F(SeededSearchTest, TriesOtherDevicesWinnersAmongItsFirst) {
  EXPECT_NE(found(), best()) << "four trials meet it by chance";
  store_.user().promote(h100_device(), key_of(kVit), winner_of(best()), nullptr);
  options_.budget.trials = 5;  // or nothing would be searched again
  EXPECT_NE(found(), best()) << "this device has a winner now";
}

TEST_F(SeededSearchTest, WithoutAWinnerOfThisDeviceTheBestElsewhereIsFoundAtOnce) {
  store_.user().promote(h100_device(), key_of(kVit), winner_of(best()), nullptr);
  EXPECT_EQ(found(), best());
}

TEST_F(SeededSearchTest, FreshBeginsFromNothing) {
  store_.user().promote(h100_device(), key_of(kVit), winner_of(best()), nullptr);
  options_.fresh = true;
  EXPECT_NE(found(), best());
}

}  // namespace
}  // namespace vitune
