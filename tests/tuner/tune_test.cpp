// tests/tuner/tune_test.cpp -- The loop over an evaluator in memory: budgets, resuming, the final
// race, recordings.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/operator.h"
#include "tests/patience.h"
#include "tests/tuner/tune_fixture.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/loop/tune_plan.h"
#include "tuner/loop/tuner.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

using test::error_of;
using test::fake_us;
using test::FakeEvaluator;
using test::fastest;
using test::problem;
using test::Tune;
using ::testing::HasSubstr;

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

TEST_F(Tune, ALargerBudgetOfTimeContinuesWhereTheSmallerOneEnded) {
  evaluator.make_space = [] { return test::synthetic_space(); };
  evaluator.preferred = test::synthetic_space().configs[100];
  evaluator.on_submit = [](std::size_t) { usleep(5000); };
  for (const Strategy strategy : {Strategy::kRandom, Strategy::kLocal}) {
    options.strategy = strategy;
    options.budget.time = std::chrono::seconds(1);
    options.fresh = true;
    const TuneOutcome first = run().outcomes[0];
    options.fresh = false;
    EXPECT_TRUE(run().outcomes[0].resumed);
    options.budget.time = std::chrono::seconds(3);
    const std::size_t before = evaluator.verified.size();
    const TuneOutcome second = run().outcomes[0];
    EXPECT_FALSE(second.resumed);
    EXPECT_GT(second.trials, first.trials);
    // The winner is confirmed; nothing else that was judged before is judged again.
    EXPECT_LE(static_cast<std::int64_t>(evaluator.verified.size() - before),
              second.trials - first.trials + 1);
    EXPECT_TRUE(run().outcomes[0].resumed);
    options.budget.time = std::chrono::seconds(2);
    EXPECT_TRUE(run().outcomes[0].resumed);
  }
}

TEST_F(Tune, ALocalSearchWithoutABudgetGoesOnAfterASmallOne) {
  options.strategy = Strategy::kLocal;
  options.budget.trials = 1;
  EXPECT_LE(run().outcomes[0].trials, 2);
  options.budget.trials.reset();
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.resumed);
  EXPECT_GT(outcome.trials, 10);
  EXPECT_TRUE(run().outcomes[0].resumed);
  options.budget.trials = 1;
  EXPECT_TRUE(run().outcomes[0].resumed);
}

TEST_F(Tune, ATimeBudgetEndsTheSearchAndTheRaceStillRuns) {
  evaluator.make_space = [] { return test::synthetic_space(); };
  evaluator.preferred = test::synthetic_space().configs[100];
  options.strategy = Strategy::kRandom;
  options.budget.time = std::chrono::seconds(1);
  evaluator.on_submit = [](std::size_t) { usleep(5000); };
  options.fresh = true;
  std::int64_t most = 0;  // of all tries
  const auto tune = [&] {
    const TuneOutcome outcome = run().outcomes[0];
    EXPECT_TRUE(outcome.winner);
    EXPECT_LT(outcome.trials, 400);
    most = std::max(most, outcome.trials);
  };
  EXPECT_TRUE(test::is_prompt(std::chrono::seconds(8), tune));
  for (int tries = 0; most <= 20 && tries < 10; ++tries) tune();
  EXPECT_GT(most, 20);
}

TEST_F(Tune, LocalSearchNeedsAFractionOfTheSpaceAndComesClose) {
  evaluator.make_space = [] { return test::synthetic_space(); };
  const SearchSpace space = test::synthetic_space();
  evaluator.preferred = space.configs[space.size() / 3];
  double best = INFINITY;
  for (std::size_t i = 0; i < space.size(); ++i) {
    if (const auto us = test::synthetic_cost(space, i, 6)) best = std::min(best, *us);
  }
  evaluator.judge = [&](const Config& config) {
    const auto us = test::synthetic_cost(space, *space.find(config), 6);
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

TEST_F(Tune, TheLastRaceHasItsTensorsAtThreePlacesAndMoreWhileItIsUndecided) {
  evaluator.race_noise = 1e-4;
  run();
  EXPECT_EQ(evaluator.places, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(evaluator.races, 3);
  evaluator.judge = [](const Config&) { return std::pair(TrialStatus::kOk, 10.0); };
  evaluator.race_noise = 0.3;
  options.fresh = true;
  run();
  EXPECT_EQ(evaluator.places, (std::set<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(evaluator.races, 3 + 12);
}

TEST_F(Tune, TheWarmObjectiveHasItsOwnWinner) {
  run();
  options.objective = Objective::kWarm;
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.resumed);
  EXPECT_EQ(outcome.winner->objective, Objective::kWarm);
  EXPECT_TRUE(user().find_winner(evaluator.device(), key(), Objective::kCold));
}

TEST_F(Tune, ReportsProgressTenTimesASecondAtMostWithTheBestSoFar) {
  evaluator.make_space = [] { return test::synthetic_space(); };
  evaluator.preferred = test::synthetic_space().configs[0];
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

TEST_F(Tune, ProblemsThatShareKernelsAndTakeMostOfAModelsTimeAreTunedFirst) {
  const auto share = [&](const char* text, double of) {
    NamedProblem named = problem(text);
    named.share = of;
    return named;
  };
  const std::vector<NamedProblem> problems = {
      share("attention bf16 b=1 h=12 n=197 d=64", 0.1),
      share("norm bf16 m=197 d=768 weight bias", 0.3),
      share("attention bf16 b=1 h=12 n=197 d=72", 0.2),
      share("norm bf16 m=394 d=768 weight bias", 0),
      share("attention bf16 b=32 h=12 n=197 d=64", 0.15),
  };
  // Norms 0.3, head size 64 0.25, of which 32 images are the most, head size 72 0.2.
  EXPECT_THAT(tuning_order(problems), ::testing::ElementsAre(1, 3, 4, 0, 2));
}

TEST_F(Tune, RecordsASweepThatReplaysToTheSameWinner) {
  test::TemporaryDirectory directory;
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

// A recording of the default config of one problem.
Recording small_recording(const NamedProblem& named) {
  Recording recording;
  recording.device = test::fake_device();
  recording.compiler_version = "nvrtc 13.0 0123456789ab";
  Trial trial;
  trial.config = default_config(*named.problem, recording.device);
  trial.origin = Origin::kReplayed;
  trial.measurement.cold = trial.measurement.warm = {10, 9.9, 10.1, 20};
  RecordedProblem recorded{named.name, named.problem->text(), {}, {trial}};
  for (const auto& [name, value] : trial.config) recorded.parameters.push_back(name);
  recording.put(std::move(recorded));
  return recording;
}

TEST_F(Tune, AReplayedWinnerWhoseKernelTheMachineDidNotGetToCompileIsNotStored) {
  CompilePoolOptions compile;
  compile.wall_limit = test::kBrief;
  for (const bool stalls : {true, false}) {
    SCOPED_TRACE(stalls);
    compile.worker_command = test::fake_compile_command();
    if (stalls) compile.worker_command[1] = "silent compile";
    if (!stalls) compile.wall_limit = test::kPatience;
    ReplayEvaluator replay(small_recording(problem()), std::make_unique<CompilePool>(compile), {},
                           stop);
    LayeredStore fresh(Store::in_memory(), nullptr);
    const TuneOutcome outcome = tune_with(replay, options, fresh, {}, {}, stop).outcomes[0];
    const auto stored = fresh.find_winner(replay.device(), key(), Objective::kCold);
    EXPECT_EQ(outcome.winner.has_value(), !stalls);
    EXPECT_EQ(stored.has_value(), !stalls);
    EXPECT_EQ(stored && fresh.find_binary(stored->kernel_key), !stalls);
    EXPECT_EQ(outcome.message.find("run again") != std::string::npos, stalls) << outcome.message;
  }
}

TEST_F(Tune, RecordingSweepsWhatAPruneTookAway) {
  run();
  user().prune(20);
  test::TemporaryDirectory directory;
  options.record = directory / "sweep.recording";
  EXPECT_FALSE(run().outcomes[0].resumed);
  EXPECT_EQ(Recording::load(*options.record).problems.at(0).trials.size(), 96u);
  EXPECT_TRUE(run().outcomes[0].resumed);
}

TEST_F(Tune, AReplayedWinnerDoesNotBlockARealTune) {
  test::TemporaryDirectory directory;
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
  test::TemporaryDirectory directory;
  options.record = directory / "sweep.recording";
  run();
  ReplayEvaluator replay(Recording::load(*options.record), nullptr, {}, stop);
  TuneOptions again;
  again.problems = {problem("attention fp16 b=1 h=1 nq=17 nk=17 d=8 layout=packed")};
  const Error error = error_of([&] { tune_with(replay, again, store, {}, {}, stop); });
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_THAT(error.what(), HasSubstr("nq=17"));
  EXPECT_THAT(error.what(), HasSubstr(options.problems[0].problem->text()));
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
