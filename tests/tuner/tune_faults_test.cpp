// tests/tuner/tune_faults_test.cpp -- The loop when candidates, workers and machines fail, and when
// it is stopped.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ended_process.h"
#include "tests/tuner/tune_fixture.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

using test::error_of;
using test::fake_us;
using test::FakeEvaluator;
using test::fastest;
using test::problem;
using test::Tune;
using ::testing::HasSubstr;

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
  // The first of four wrong ones is told of.
  const std::size_t told = messages.find("a candidate gave a wrong result and is not used: ");
  ASSERT_NE(told, std::string::npos) << messages;
  EXPECT_THAT(messages, HasSubstr("The kernels or this GPU are at fault"));
  EXPECT_EQ(messages.find("a candidate gave", told + 1), std::string::npos) << messages;
}

TEST_F(Tune, ALibrarysWrongAlgorithmIsNotTheKernelsFault) {
  constexpr std::int64_t kCublasLt = 2;  // of families of linear layers
  options.problems = {problem("linear bf16 m=64 n=64 k=64")};
  evaluator.preferred.reset();
  evaluator.make_space = [] {
    return SearchSpace(ParameterSpace(
        {{"kFamily", {kCublasLt}, ""}, {"kLibrary", {130101}, ""}, {"kBlockN", {16, 32}, ""}}, {}));
  };
  evaluator.judge = [](const Config&) { return std::pair(TrialStatus::kWrong, 0.0); };
  EXPECT_FALSE(run().outcomes[0].winner);
  EXPECT_THAT(messages, HasSubstr("The library that it calls or this GPU are at fault"));
  EXPECT_THAT(messages, ::testing::Not(HasSubstr("The kernels")));
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

// Rows from before keys were made of tokens name the kernel by another key.
TEST_F(Tune, AFaultThatIsWrittenDownByTheRuleOfBeforeKeepsItsKernelFromALaunch) {
  const Config champion = run().outcomes[0].winner->config;
  const Digest before = evaluator.former_key(champion);
  for (const bool timeout : {true, false}) {
    SCOPED_TRACE(timeout);
    LayeredStore other(Store::in_memory(), nullptr);
    if (timeout) {
      Trial trial = *user().find_trial(evaluator.device(), key(), champion);
      trial.kernel_key = before;
      trial.status = TrialStatus::kTimeout;
      trial.reason = "did not finish";
      trial.measurement = {};
      other.user().put_trial(evaluator.device(), key(), trial);
    } else {
      other.user().block({before, evaluator.device().key(), evaluator.device().driver_version,
                          TrialStatus::kWrong, "max error 0.5"});
    }
    evaluator.verified.clear();
    const TuneReport report = tune_with(evaluator, options, other, {}, {}, stop);
    ASSERT_TRUE(report.outcomes[0].winner);
    EXPECT_NE(report.outcomes[0].winner->config, champion);
    EXPECT_EQ(report.outcomes[0].failed, 1);
    EXPECT_THAT(evaluator.verified, ::testing::Not(::testing::Contains(champion)));
  }
}

TEST_F(Tune, AKernelThatDidNotEndIsNotLaunchedForThatProblemAgainAndForOthersIs) {
  options.problems.push_back(problem("attention fp16 b=1 h=12 nq=257 nk=257 d=80 layout=packed"));
  const Config slow = fastest();
  evaluator.judge = [&](const Config& config) {
    return evaluator.begun == 1 && config == slow ? std::pair(TrialStatus::kTimeout, 0.0)
                                                  : std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneReport report = run();
  const bool first_is_slow = report.outcomes[0].failed == 1;
  EXPECT_NE(report.outcomes[first_is_slow ? 0 : 1].winner->config, slow);
  EXPECT_EQ(report.outcomes[first_is_slow ? 1 : 0].winner->config, slow);
  EXPECT_TRUE(user().blocks().empty());
  auto merged = Store::in_memory();
  merged->merge(user());
  EXPECT_TRUE(merged->blocks().empty());
  EXPECT_EQ(merged->all_trials().size(), user().all_trials().size());
}

TEST_F(Tune, AKernelWhoseFaultsWereForgottenIsTriedAgain) {
  const Config champion = fastest();
  bool broken = true;
  evaluator.judge = [&](const Config& config) {
    return broken && config == champion ? std::pair(TrialStatus::kTimeout, 0.0)
                                        : std::pair(TrialStatus::kOk, fake_us(config));
  };
  EXPECT_NE(run().outcomes[0].winner->config, champion);
  broken = false;
  options.fresh = true;  // the winner holds for its trials
  EXPECT_NE(run().outcomes[0].winner->config, champion);
  EXPECT_EQ(user().forget_faults(evaluator.key(champion)), 1);
  EXPECT_EQ(run().outcomes[0].winner->config, champion);
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

TEST_F(Tune, ACompilerThatWasTooSlowOnceIsAskedAgainByTheNextRun) {
  for (const TrialStatus status : {TrialStatus::kCompileTimeout, TrialStatus::kCompileCrash}) {
    bool busy = true;
    evaluator.judge = [&](const Config& config) {
      return busy && config.at("kBlockN") == 64 ? std::pair(status, 0.0)
                                                : std::pair(TrialStatus::kOk, fake_us(config));
    };
    evaluator.kernels = trial_status_name(status);
    options.budget.trials = 60;
    EXPECT_GT(run().outcomes[0].failed, 0);
    busy = false;
    options.budget.trials = 96;
    const TuneOutcome outcome = run().outcomes[0];
    EXPECT_FALSE(outcome.resumed);
    EXPECT_EQ(outcome.failed, 0);
    EXPECT_EQ(outcome.trials, 96);
  }
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
  const std::string bad = options.problems[0].problem->text();
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

TEST_F(Tune, WhereNoContestantSurvivesARaceThereIsNoWinner) {
  bool racing = false;
  evaluator.on_race = [&] { racing = true; };
  evaluator.judge = [&](const Config& config) {
    return racing ? std::pair(TrialStatus::kCrash, 0.0)
                  : std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.winner);
  EXPECT_THAT(outcome.message, HasSubstr("none of the 96 candidates works"));
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
  for (const Config& config : {once, twice, twice}) {
    user().begin_attempt(evaluator.device(), key(), config, test::ended_process());
  }
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

TEST_F(Tune, WhatOtherTunersRunAtThisMomentIsNeitherSuspectNorBlocked) {
  const Config config{{"kBlockN", 16}, {"kStages", 1}, {"kWarps", 1}};
  user().begin_attempt(evaluator.device(), key(), config);
  user().begin_attempt(evaluator.device(), key(), config);
  run();
  EXPECT_EQ(evaluator.verified[0], config);
  EXPECT_TRUE(user().blocks().empty());
}

TEST_F(Tune, AKernelThatWasBlockedAfterItWasMeasuredIsNotRaced) {
  const Config champion = run().outcomes[0].winner->config;
  user().block({evaluator.key(champion), evaluator.device().key(),
                evaluator.device().driver_version, TrialStatus::kTimeout,
                "hung on another problem"});
  std::vector<Config> launched;
  evaluator.judge = [&](const Config& config) {
    launched.push_back(config);
    return std::pair(TrialStatus::kOk, fake_us(config));
  };
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_NE(outcome.winner->config, champion);
  EXPECT_EQ(outcome.failed, 1);
  EXPECT_FALSE(launched.empty());
  EXPECT_THAT(launched, ::testing::Not(::testing::Contains(champion)));
}

TEST_F(Tune, AnOkTrialWithoutTimesIsMeasured) {
  run();
  Trial trial = *user().find_trial(evaluator.device(), key(), fastest());
  trial.measurement = {};
  user().put_trial(evaluator.device(), key(), trial);
  options.objective = Objective::kWarm;
  evaluator.measured.clear();
  run();
  EXPECT_THAT(evaluator.measured, ::testing::Contains(fastest()));
  EXPECT_GT(user().find_trial(evaluator.device(), key(), fastest())->measurement.cold.median_us, 0);
}

// Whoever is judged after a race finds no memory, that often.
class Crowded : public Tune {
 protected:
  void crowd(int times) {
    evaluator.race_noise = 1e-5;
    evaluator.judge = [this](const Config& config) {
      return std::pair(judging_ && left_-- > 0 ? TrialStatus::kOutOfMemory : TrialStatus::kOk,
                       fake_us(config));
    };
    evaluator.on_submit = [this](std::size_t) { judging_ = raced_; };
    evaluator.on_race = [this] { raced_ = true, judging_ = false; };
    left_ = times;
  }
  bool raced_ = false, judging_ = false;
  int left_ = 0;
};

TEST_F(Crowded, AWinnerThatFindsNoMemoryWhenJudgedAgainIsJudgedOnceMore) {
  crowd(1);
  const TuneOutcome outcome = run().outcomes[0];
  ASSERT_TRUE(outcome.winner);
  EXPECT_LE(fake_us(outcome.winner->config), 1.01 * fake_us(fastest()));
  EXPECT_EQ(outcome.failed, 0);
}

TEST_F(Crowded, WithoutMemoryToJudgeAWinnerThereIsNoneAndTheTrialsStay) {
  crowd(1000000);
  const TuneOutcome outcome = run().outcomes[0];
  EXPECT_FALSE(outcome.winner);
  EXPECT_THAT(outcome.message, HasSubstr("too little free memory"));
  for (const Trial& trial : trials()) {
    EXPECT_EQ(trial.status, TrialStatus::kOk);
    EXPECT_GT(trial.measurement.cold.median_us, 0);
  }
  crowd(0);
  EXPECT_TRUE(run().outcomes[0].winner);
}

}  // namespace
}  // namespace vitune
