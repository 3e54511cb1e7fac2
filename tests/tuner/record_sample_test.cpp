// tests/tuner/record_sample_test.cpp -- Recordings of a sample of a space and the search's winner.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "generator/operator.h"
#include "tests/tuner/synthetic_space.h"
#include "tests/tuner/tune_fixture.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/loop/tune_plan.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

using test::error_of;
using ::testing::HasSubstr;

class RecordSample : public test::Tune {
 protected:
  RecordSample() {
    evaluator.make_space = [] { return test::synthetic_space(); };
    evaluator.preferred = test::synthetic_space().configs[100];
    options.strategy = Strategy::kLocal;
    options.record = directory_ / "sample.recording";
    options.record_sample = 40;
  }
  RecordedProblem recorded() const { return Recording::load(*options.record).problems.at(0); }
  static std::set<Config> drawn(const RecordedProblem& problem) {
    std::set<Config> configs;
    for (std::size_t i = 0; i < problem.drawn.size(); ++i) {
      if (problem.drawn[i]) configs.insert(problem.trials[i].config);
    }
    return configs;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(RecordSample, HoldsTheSampleAndTheWinner) {
  const TuneReport report = run();
  ASSERT_TRUE(report.outcomes[0].winner);
  const RecordedProblem problem = recorded();
  const std::size_t size = test::synthetic_space().size();
  EXPECT_EQ(problem.space_size, static_cast<std::int64_t>(size));
  ASSERT_EQ(problem.drawn.size(), problem.trials.size());
  EXPECT_EQ(drawn(problem).size(), 40u);
  EXPECT_LT(problem.trials.size(), size / 2) << "that is no sample";
  EXPECT_TRUE(std::ranges::any_of(problem.trials, [&](const Trial& trial) {
    return trial.config == report.outcomes[0].winner->config;
  }));
}

TEST_F(RecordSample, IsTheSameForTheSameSeedWhateverWasTriedBefore) {
  run();
  const std::set<Config> first = drawn(recorded());
  options.record = directory_ / "again.recording";
  EXPECT_TRUE(run().outcomes[0].resumed) << "all of it was tried";
  EXPECT_EQ(drawn(recorded()), first);
  options.seed = 2;
  options.record = directory_ / "another.recording";
  EXPECT_FALSE(run().outcomes[0].resumed) << "another sample was not";
  EXPECT_EQ(drawn(recorded()).size(), 40u);
  EXPECT_NE(drawn(recorded()), first);
}

TEST_F(RecordSample, ReplaysAndSaysThatItIsOne) {
  const TuneReport measured = run();
  std::string said;
  ReplayEvaluator replay(
      Recording::load(*options.record), nullptr,
      [&](LogLevel, std::string_view line) { said += std::string(line); }, stop);
  TuneOptions again;
  again.problems = options.problems;
  again.strategy = Strategy::kExhaustive;
  LayeredStore fresh(Store::in_memory(), nullptr);
  const TuneOutcome outcome = tune_with(replay, again, fresh, {}, {}, stop).outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_EQ(outcome.trials, static_cast<std::int64_t>(recorded().trials.size()));
  EXPECT_THAT(said, HasSubstr("configs are recorded, a sample"));
}

TEST_F(RecordSample, WithoutAWinnerNothingIsRecorded) {
  evaluator.judge = [](const Config&) { return std::pair(TrialStatus::kPruned, 0.0); };
  run();
  EXPECT_FALSE(std::filesystem::exists(*options.record));
  EXPECT_THAT(messages, HasSubstr("is not recorded"));
}

TEST_F(RecordSample, OfTheWholeSpaceHasAllOfIt) {
  evaluator.make_space = [] { return test::FakeEvaluator::small_space(); };
  evaluator.preferred.reset();
  options.record_sample = 1000;
  run();
  EXPECT_EQ(recorded().trials.size(), 96u);
  EXPECT_EQ(drawn(recorded()).size(), 96u);
}

TEST(RecordSampleOptions, ContradictionsAreRefused) {
  TuneOptions options;
  options.problems = {test::problem()};
  options.record = "r";
  options.record_sample = 5;
  EXPECT_NO_THROW(check_options(options));
  const auto refuses = [&](const std::function<void(TuneOptions&)>& change) {
    TuneOptions changed = options;
    change(changed);
    return error_of([&] { check_options(changed); }).code() == ErrorCode::kUsage;
  };
  EXPECT_TRUE(refuses([](TuneOptions& o) { o.record_sample = 0; }));
  EXPECT_TRUE(refuses([](TuneOptions& o) { o.record.reset(); }));
  EXPECT_TRUE(refuses([](TuneOptions& o) { o.strategy = Strategy::kExhaustive; }));
  EXPECT_TRUE(refuses([](TuneOptions& o) { o.budget.trials = 5; }));
}

// A recording has a value of each parameter for each candidate.
TEST(RecordedConfigs, OfEveryOperatorHaveAllParametersOfItsSpace) {
  for (const Operator* op : operators()) {
    const ProblemPtr problem = op->parse(op->example());
    for (const DeviceInfo& device : {h200_facts(), architecture_limits("sm_80").value()}) {
      const ParameterSpace space = op->space(*problem, device);
      const std::vector<Config> configs = space.enumerate();
      for (std::size_t i = 0; i < configs.size(); i += 1 + configs.size() / 500) {
        EXPECT_TRUE(configs[i].family().empty()) << configs[i].text();
        for (const Parameter& parameter : space.parameters()) {
          if (parameter.open) continue;
          ASSERT_TRUE(configs[i].find(parameter.name))
              << op->name() << " " << parameter.name << ": " << configs[i].text();
        }
      }
    }
  }
}

}  // namespace
}  // namespace vitune
