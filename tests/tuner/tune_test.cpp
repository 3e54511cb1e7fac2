// tests/tuner/tune_test.cpp -- The loop over an evaluator in memory: budgets, resuming, the final
// race, faults, interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuner/fake_evaluator.h"
#include "tests/tuner/test_support.h"
#include "tuner/recording.h"
#include "tuner/replay_evaluator.h"
#include "tuner/tune_plan.h"
#include "tuner/tuner.h"

namespace vitune {
namespace {

using testing::error_of;
using testing::fake_us;
using testing::FakeEvaluator;
using ::testing::HasSubstr;

NamedProblem problem(
    const std::string& text = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed") {
  NamedProblem named;
  named.problem = AttentionProblem::parse(text);
  named.name = text;
  return named;
}

class Tune : public ::testing::Test {
 protected:
  TuneReport run() {
    return tune_with(
        evaluator, options, store, [this](const TuneProgress& p) { reports.push_back(p); },
        [this](LogLevel, std::string_view text) { messages += std::string(text) + "\n"; }, stop);
  }
  ProblemKey key(std::size_t index = 0) const {
    return {"attention", options.problems[index].problem.text()};
  }
  Store& user() { return store.user(); }
  std::vector<Trial> trials() { return user().trials(evaluator.device(), key()); }

  FakeEvaluator evaluator;
  LayeredStore store{Store::in_memory(), nullptr};
  TuneOptions options = [] {
    TuneOptions result;
    result.problems = {problem()};
    result.strategy = Strategy::kExhaustive;
    return result;
  }();
  std::atomic<bool> stop{false};
  std::vector<TuneProgress> reports;
  std::string messages;
};

// The fastest config of the small space.
Config fastest() {
  const SearchSpace space = FakeEvaluator::small_space();
  return *std::min_element(
      space.configs.begin(), space.configs.end(),
      [](const Config& a, const Config& b) { return fake_us(a) < fake_us(b); });
}

TEST_F(Tune, ASweepFindsTheFastestAndStoresItWithItsEvidence) {
  const TuneReport report = run();
  ASSERT_EQ(report.outcomes.size(), 1u);
  const TuneOutcome& outcome = report.outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_LE(fake_us(outcome.winner->config), 1.01 * fake_us(fastest()));
  EXPECT_EQ(outcome.trials, 96);
  EXPECT_FALSE(outcome.resumed);
  const auto stored = user().find_winner(evaluator.device(), key(), Objective::kCold);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->config, outcome.winner->config);
  EXPECT_EQ(stored->kernel_key, outcome.winner->kernel_key);
  EXPECT_GE(stored->measurement.cold.samples, 30);
  EXPECT_LE(stored->measurement.cold.low_us, stored->measurement.cold.high_us);
  EXPECT_TRUE(stored->runner_up);
  EXPECT_NE(stored->runner_up, stored->config);
  EXPECT_GT(stored->error.max_bound, 0);
  EXPECT_NEAR(*stored->default_us, fake_us(*evaluator.preferred), 0.02 * *stored->default_us);
  EXPECT_EQ(stored->trials, 96);
  EXPECT_TRUE(user().find_binary(stored->kernel_key));
  EXPECT_EQ(trials().size(), 96u);
}

TEST_F(Tune, EveryCandidateIsVerifiedAndTheWinnerOnceMore) {
  const TuneReport report = run();
  EXPECT_EQ(evaluator.verified.size(), 97u);
  EXPECT_EQ(evaluator.verified.back(), report.outcomes[0].winner->config);
}

TEST_F(Tune, TheBestAreMeasuredAgainForLonger) {
  run();
  EXPECT_GT(evaluator.measured.size(), 96u + 8u);
  EXPECT_LT(evaluator.measured.size(), 96u + 24u + 8u + 1u);
  int longest = 0;
  for (const Trial& trial : trials()) longest = std::max(longest, trial.measurement.cold.samples);
  EXPECT_EQ(longest, 20);
}

TEST_F(Tune, AStoredWinnerThatStillHoldsIsNotTunedAgain) {
  const TuneReport first = run();
  evaluator.measured.clear();
  const TuneReport second = run();
  EXPECT_TRUE(second.outcomes[0].resumed);
  EXPECT_EQ(second.outcomes[0].winner, first.outcomes[0].winner);
  EXPECT_TRUE(evaluator.measured.empty());
}

TEST_F(Tune, FreshTunesAgain) {
  run();
  options.fresh = true;
  evaluator.measured.clear();
  EXPECT_FALSE(run().outcomes[0].resumed);
  EXPECT_GE(evaluator.measured.size(), 96u);
}

TEST_F(Tune, ChangedKernelsAreTunedAgainAndThePreviousWinnerRuns) {
  run();
  evaluator.kernels = "v2";
  options.strategy = Strategy::kRandom;
  options.budget.trials = 5;
  const Config previous = user().find_winner(evaluator.device(), key(), Objective::kCold)->config;
  evaluator.measured.clear();
  const TuneReport report = run();
  EXPECT_FALSE(report.outcomes[0].resumed);
  EXPECT_THAT(evaluator.measured, ::testing::Contains(previous));
  EXPECT_EQ(report.outcomes[0].winner->config, previous);
  EXPECT_EQ(report.outcomes[0].winner->kernel_key, evaluator.key(previous));
}

TEST_F(Tune, ALargerBudgetContinuesWhereTheSmallerOneEnded) {
  options.strategy = Strategy::kRandom;
  options.budget.trials = 20;
  EXPECT_LE(run().outcomes[0].trials, 21);  // and the default
  const std::size_t before = evaluator.verified.size();
  options.budget.trials = 40;
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.resumed);
  EXPECT_GE(outcome.trials, 40);
  EXPECT_LE(evaluator.verified.size(), before + 21);
  EXPECT_TRUE(run().outcomes[0].resumed);
}

TEST_F(Tune, ATimeBudgetEndsTheSearchAndTheRaceStillRuns) {
  evaluator.make_space = [] { return testing::synthetic_space(); };
  evaluator.preferred = testing::synthetic_space().configs[100];
  options.strategy = Strategy::kRandom;
  options.budget.time = std::chrono::seconds(1);
  evaluator.on_submit = [](std::size_t) { usleep(5000); };
  const auto begin = std::chrono::steady_clock::now();
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  EXPECT_TRUE(outcome.winner);
  EXPECT_GT(outcome.trials, 20);
  EXPECT_LT(outcome.trials, 400);
}

TEST_F(Tune, LocalSearchNeedsAFractionOfTheSpaceAndComesClose) {
  evaluator.make_space = [] { return testing::synthetic_space(); };
  const SearchSpace space = testing::synthetic_space();
  evaluator.preferred = space.configs[space.size() / 3];
  double best = INFINITY;
  for (std::size_t i = 0; i < space.size(); ++i) {
    if (const auto us = testing::synthetic_cost(space, i, 6)) best = std::min(best, *us);
  }
  evaluator.judge = [&](const Config& config) {
    const auto us = testing::synthetic_cost(space, *space.find(config), 6);
    return us ? std::pair(TrialStatus::kOk, *us) : std::pair(TrialStatus::kPruned, 0.0);
  };
  options.strategy = Strategy::kLocal;
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_LE(outcome.trials, static_cast<std::int64_t>(space.size() / 5 + 8));
  EXPECT_LE(outcome.winner->measurement.cold.median_us, best / 0.97);
}

TEST_F(Tune, EqualsKeepThePreviousWinnerAcrossTunes) {
  evaluator.judge = [](const Config&) { return std::pair(TrialStatus::kOk, 10.0); };
  const Config first = run().outcomes[0].winner->config;
  EXPECT_EQ(first, *evaluator.preferred);  // the default, there being no winner yet
  options.fresh = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run().outcomes[0].winner->config, first);
}

TEST_F(Tune, TheWarmObjectiveHasItsOwnWinner) {
  run();
  options.objective = Objective::kWarm;
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.resumed);
  EXPECT_EQ(outcome.winner->objective, Objective::kWarm);
  EXPECT_TRUE(user().find_winner(evaluator.device(), key(), Objective::kCold));
}

TEST_F(Tune, PrunedAndFailedCandidatesAreRowsAndNeverWin) {
  evaluator.judge = [](const Config& config) {
    if (config.at("kStages") == 3) return std::pair(TrialStatus::kPruned, 0.0);
    if (config.at("kWarps") == 8 && config.at("kBlockN") < 48)
      return std::pair(TrialStatus::kWrong, 0.0);
    return std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_EQ(outcome.pruned, 32);
  EXPECT_EQ(outcome.failed, 4);
  EXPECT_EQ(trials().size(), 96u);
  EXPECT_EQ(user().blocks().size(), 4u);
  EXPECT_NE(outcome.winner->config.at("kStages"), 3);
}

TEST_F(Tune, ABlockedKernelIsNotLaunchedAgain) {
  const Config bad{{"kBlockN", 16}, {"kStages", 1}, {"kWarps", 1}};
  evaluator.judge = [&](const Config& config) {
    return config == bad ? std::pair(TrialStatus::kTimeout, 0.0)
                         : std::pair(TrialStatus::kOk, fake_us(config));
  };
  run();
  options.fresh = true;
  evaluator.verified.clear();
  EXPECT_EQ(run().outcomes[0].failed, 1);
  EXPECT_THAT(evaluator.verified, ::testing::Not(::testing::Contains(bad)));
}

TEST_F(Tune, TooLittleMemoryIsTriedAgainAndNotBlocked) {
  bool full = true;
  evaluator.judge = [&](const Config& config) {
    const bool large = full && config.at("kBlockN") == 128;
    return large ? std::pair(TrialStatus::kOutOfMemory, 0.0)
                 : std::pair(TrialStatus::kOk, fake_us(config));
  };
  EXPECT_EQ(run().outcomes[0].failed, 12);
  EXPECT_TRUE(user().blocks().empty());
  full = false;
  evaluator.kernels = "v1";
  // The winner holds for its trials; asking for the sweep anew tries what had no room.
  options.fresh = true;
  EXPECT_EQ(run().outcomes[0].failed, 0);
}

TEST_F(Tune, NothingThatWorksGivesNoWinnerAndSaysWhy) {
  evaluator.judge = [](const Config&) { return std::pair(TrialStatus::kPruned, 0.0); };
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.winner);
  EXPECT_THAT(outcome.message, HasSubstr("none of the 96 candidates works"));
  EXPECT_THAT(messages, HasSubstr("96 were pruned"));
}

TEST_F(Tune, FaultAfterFaultStopsTheProblemButNotTheRun) {
  options.problems.push_back(problem("attention fp16 b=1 h=12 nq=257 nk=257 d=80 layout=packed"));
  const std::string bad = options.problems[0].problem.text();
  std::string current;
  evaluator.judge = [&](const Config& config) {
    return evaluator.begun == 1 ? std::pair(TrialStatus::kCrash, 0.0)
                                : std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneReport report = run();
  const bool first_failed = !report.outcomes[0].winner;
  const TuneOutcome& failed = report.outcomes[first_failed ? 0 : 1];
  const TuneOutcome& good = report.outcomes[first_failed ? 1 : 0];
  EXPECT_THAT(failed.message, HasSubstr("more than half of the last 20"));
  EXPECT_LT(failed.trials, 40);
  EXPECT_TRUE(good.winner);
}

TEST_F(Tune, AContestantThatCrashesInTheRaceIsFoundBlockedAndLeftOut) {
  const Config champion = fastest();
  bool racing = false;
  evaluator.on_race = [&] { racing = true; };
  evaluator.judge = [&](const Config& config) {
    if (racing && config == champion) return std::pair(TrialStatus::kCrash, 0.0);
    return std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_NE(outcome.winner->config, champion);
  EXPECT_EQ(user().find_trial(evaluator.device(), key(), champion)->status, TrialStatus::kCrash);
  EXPECT_EQ(user().blocks().size(), 1u);
}

TEST_F(Tune, AWinnerThatIsWrongWhenJudgedAgainIsNotStored) {
  const Config champion = fastest();
  bool raced = false;
  evaluator.race_noise = 1e-5;
  evaluator.judge = [&](const Config& config) {
    return std::pair(TrialStatus::kOk, fake_us(config));
  };
  evaluator.on_race = [&] {
    if (raced) return;
    raced = true;
    // From now on, outside races.
  };
  evaluator.on_submit = [&](std::size_t) {
    if (!raced) return;
    evaluator.judge = [&](const Config& config) {
      return config == champion ? std::pair(TrialStatus::kWrong, 0.0)
                                : std::pair(TrialStatus::kOk, fake_us(config));
    };
  };
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_NE(outcome.winner->config, champion);
  EXPECT_EQ(user().find_trial(evaluator.device(), key(), champion)->status, TrialStatus::kWrong);
}

TEST_F(Tune, ARaceThatCannotBeHeldIsDecidedByTheTrialsWithLowConfidence) {
  bool racing = false;
  evaluator.on_race = [&] { racing = true; };
  evaluator.on_submit = [&](std::size_t) { racing = false; };
  evaluator.judge = [&](const Config& config) {
    return racing ? std::pair(TrialStatus::kOutOfMemory, 0.0)
                  : std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_TRUE(outcome.winner->measurement.low_confidence);
  EXPECT_LE(fake_us(outcome.winner->config), 1.01 * fake_us(fastest()));
}

TEST_F(Tune, StoppingKeepsWhatIsCommittedAndTheNextRunGoesOnFromThere) {
  int submitted = 0;
  evaluator.on_submit = [&](std::size_t) { stop = ++submitted == 30; };
  const TuneReport report = run();
  EXPECT_TRUE(report.interrupted);
  EXPECT_FALSE(report.outcomes[0].winner);
  EXPECT_THAT(report.outcomes[0].message, HasSubstr("interrupted"));
  const std::size_t committed = trials().size();
  EXPECT_GE(committed, 26u);
  EXPECT_TRUE(user().open_attempts(evaluator.device()).empty());
  stop = false;
  evaluator.on_submit = [](std::size_t) {};
  evaluator.verified.clear();
  FakeEvaluator next;
  const TuneReport resumed = tune_with(next, options, store, {}, {}, stop);
  EXPECT_TRUE(resumed.outcomes[0].winner);
  EXPECT_EQ(next.verified.size(), 96 - committed + 1);
}

TEST_F(Tune, StoppedBeforeItBeginsItRunsNothing) {
  stop = true;
  EXPECT_TRUE(run().interrupted);
  EXPECT_TRUE(evaluator.verified.empty());
}

TEST_F(Tune, WhatWasRunningWhenTheMachineDiedComesLastAndTheSecondTimeNotAtAll) {
  const Config once{{"kBlockN", 16}, {"kStages", 1}, {"kWarps", 1}};
  const Config twice{{"kBlockN", 16}, {"kStages", 1}, {"kWarps", 2}};
  user().begin_attempt(evaluator.device(), key(), once);
  user().begin_attempt(evaluator.device(), key(), twice);
  user().begin_attempt(evaluator.device(), key(), twice);
  run();
  EXPECT_EQ(evaluator.verified[94], once);  // of the 95 that were tried at all
  EXPECT_THAT(evaluator.verified, ::testing::Not(::testing::Contains(twice)));
  const auto trial = user().find_trial(evaluator.device(), key(), twice);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->status, TrialStatus::kCrash);
  EXPECT_THAT(trial->reason, HasSubstr("died twice"));
  EXPECT_EQ(user().blocks().size(), 1u);
  EXPECT_TRUE(user().open_attempts(evaluator.device()).empty());
}

TEST_F(Tune, ReportsProgressTenTimesASecondAtMostWithTheBestSoFar) {
  evaluator.make_space = [] { return testing::synthetic_space(); };
  evaluator.preferred = testing::synthetic_space().configs[0];
  options.strategy = Strategy::kRandom;
  options.budget.trials = 400;
  evaluator.on_submit = [](std::size_t) { usleep(2000); };
  const TuneReport report = run();
  ASSERT_GE(reports.size(), 3u);
  EXPECT_LE(reports.size(), static_cast<std::size_t>(report.seconds * 10) + 3);
  const TuneProgress& progress = reports[reports.size() - 2];
  EXPECT_EQ(progress.problem_count, 1u);
  EXPECT_TRUE(progress.best_us);
  EXPECT_FALSE(progress.best_config.empty());
  EXPECT_EQ(reports.back().phase, "race");
  EXPECT_TRUE(
      std::any_of(reports.begin(), reports.end(), [](const auto& p) { return p.eta.has_value(); }));
}

TEST_F(Tune, OutcomesComeInTheCallersOrderWhateverTheOrderOfTuning) {
  options.problems = {problem("attention fp16 b=1 h=12 nq=257 nk=257 d=80 layout=packed"),
                      problem("attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed"),
                      problem("attention fp16 b=8 h=12 nq=257 nk=257 d=80 layout=packed")};
  const TuneReport report = run();
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(report.outcomes[i].problem.name, options.problems[i].name);
  const auto order = tuning_order(options.problems);
  const auto place = [&](std::size_t index) {
    return std::find(order.begin(), order.end(), index) - order.begin();
  };
  EXPECT_EQ(std::abs(place(0) - place(2)), 1);
}

TEST_F(Tune, RecordsASweepThatReplaysToTheSameWinner) {
  testing::TemporaryDirectory directory;
  options.record = directory / "sweep.recording";
  evaluator.race_noise = 1e-4;
  const TuneReport measured = run();
  options.problems = {problem("attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed")};
  run();
  Recording recording = Recording::load(*options.record);
  ASSERT_EQ(recording.problems.size(), 2u);
  EXPECT_EQ(recording.problems[0].trials.size(), 96u);

  ReplayEvaluator replay(recording, nullptr, {}, stop);
  TuneOptions again;
  again.problems = {problem()};
  again.strategy = Strategy::kExhaustive;
  LayeredStore fresh(Store::in_memory(), nullptr);
  const TuneReport replayed = tune_with(replay, again, fresh, {}, {}, stop);
  ASSERT_TRUE(replayed.outcomes[0].winner);
  EXPECT_EQ(replayed.origin, Origin::kReplayed);
  EXPECT_EQ(replayed.outcomes[0].winner->origin, Origin::kReplayed);
  EXPECT_LE(fake_us(replayed.outcomes[0].winner->config), 1.01 * fake_us(fastest()));
  EXPECT_FALSE(fresh.find_binary(replayed.outcomes[0].winner->kernel_key));

  // Over a database with a measured winner, that one stays.
  const TuneReport over = tune_with(replay, again, store, {}, {}, stop);
  EXPECT_EQ(over.outcomes[0].winner->origin, Origin::kMeasured);
  EXPECT_EQ(over.outcomes[0].winner->config, measured.outcomes[0].winner->config);
}

TEST_F(Tune, AReplayedWinnerDoesNotBlockARealTune) {
  testing::TemporaryDirectory directory;
  options.record = directory / "sweep.recording";
  run();
  ReplayEvaluator replay(Recording::load(*options.record), nullptr, {}, stop);
  TuneOptions again;
  again.problems = options.problems;
  LayeredStore fresh(Store::in_memory(), nullptr);
  tune_with(replay, again, fresh, {}, {}, stop);
  ASSERT_EQ(fresh.user().find_winner(evaluator.device(), key(), Objective::kCold)->origin,
            Origin::kReplayed);
  FakeEvaluator real;
  again.strategy = Strategy::kExhaustive;
  const TuneReport report = tune_with(real, again, fresh, {}, {}, stop);
  EXPECT_FALSE(report.outcomes[0].resumed);
  EXPECT_EQ(fresh.user().find_winner(evaluator.device(), key(), Objective::kCold)->origin,
            Origin::kMeasured);
  EXPECT_GE(real.verified.size(), 96u);
}

TEST_F(Tune, AReplayOfAnUnknownProblemNamesThoseThatAreRecorded) {
  testing::TemporaryDirectory directory;
  options.record = directory / "sweep.recording";
  run();
  ReplayEvaluator replay(Recording::load(*options.record), nullptr, {}, stop);
  TuneOptions again;
  again.problems = {problem("attention fp16 b=1 h=1 nq=17 nk=17 d=8 layout=packed")};
  const Error error = error_of([&] { tune_with(replay, again, store, {}, {}, stop); });
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_THAT(error.what(), HasSubstr("nq=17"));
  EXPECT_THAT(error.what(), HasSubstr(options.problems[0].problem.text()));
}

TEST(TuneOptions, ContradictionsAreRefused) {
  const auto refused = [](const std::function<void(TuneOptions&)>& change) {
    TuneOptions options;
    options.problems = {problem()};
    change(options);
    return error_of([&] { check_options(options); }).code() == ErrorCode::kUsage;
  };
  EXPECT_FALSE(refused([](TuneOptions&) {}));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.record = "r"; }));  // not exhaustive
  EXPECT_TRUE(refused([](TuneOptions& o) {
    o.record = "r";
    o.replay = "p";
    o.strategy = Strategy::kExhaustive;
  }));
  EXPECT_TRUE(refused([](TuneOptions& o) {
    o.record = "r";
    o.budget.trials = 5;
    o.strategy = Strategy::kExhaustive;
  }));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.budget.trials = 0; }));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.budget.time = std::chrono::seconds(0); }));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.devices = {}; }));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.devices = {0, 1, 0}; }));
  EXPECT_TRUE(refused([](TuneOptions& o) { o.devices = {-1}; }));
}

}  // namespace
}  // namespace vitune
