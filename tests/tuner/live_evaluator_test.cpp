// tests/tuner/live_evaluator_test.cpp -- Compiling, pruning and measuring through worker processes,
// with workers that do as they are told.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/evaluate/live_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/generator/twice_operator.h"
#include "tests/patience.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/test_support.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using test::error_of;
using test::fake_bench_command;
using test::fake_compile_command;
using ::testing::HasSubstr;

AttentionProblem vit_b_attention() {
  return AttentionProblem::parse("attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed");
}

LiveOptions live_options(const std::vector<std::string>& bench) {
  LiveOptions options;
  options.bench.command = fake_bench_command(bench);
  options.bench.back_off = {milliseconds(10), milliseconds(20), milliseconds(30)};
  options.compile.worker_command = fake_compile_command();
  options.compile.workers = 2;
  options.base_deadline = options.trial_limit = test::kPatience;
  return options;
}

class Live : public ::testing::Test {
 protected:
  void open(LiveOptions options) {
    evaluator = std::make_unique<LiveEvaluator>(
        std::move(options),
        [this](LogLevel, std::string_view text) { messages += std::string(text) + "\n"; }, stop);
  }
  void begin(const AttentionProblem& asked) {
    EvaluationContext context;
    context.problem = asked;
    context.blocked =
        [this](const Config& config) -> std::optional<std::pair<TrialStatus, std::string>> {
      if (blocked.contains(evaluator->key(config)))
        return std::pair(TrialStatus::kTimeout, std::string("hung before"));
      return std::nullopt;
    };
    context.launching = [this](const Config& config) { launched.push_back(config); };
    evaluator->begin(context);
    space.emplace(evaluator->space(asked));
  }
  // Runs `count` configs spread over the space; gives their trials by id.
  std::map<std::size_t, Trial> run(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      evaluator->submit(i, {config(i, count), {}, true, true});
    return collect(count);
  }
  Config config(std::size_t i, std::size_t count) const {
    return space->configs[i * (space->size() / count)];
  }
  std::map<std::size_t, Trial> collect(std::size_t count) {
    std::map<std::size_t, Trial> trials;
    const auto until = std::chrono::steady_clock::now() + test::kPatience;
    while (trials.size() < count && std::chrono::steady_clock::now() < until) {
      if (auto ended = evaluator->wait(milliseconds(100))) trials.insert(*ended);
    }
    EXPECT_EQ(trials.size(), count);
    return trials;
  }

  const Config& preset() const { return space->configs[space->preset.value()]; }

  std::atomic<bool> stop{false};
  std::unique_ptr<LiveEvaluator> evaluator;
  std::optional<SearchSpace> space;
  std::vector<Config> launched;
  std::set<Digest> blocked;
  std::string messages;
  test::TemporaryDirectory directory;
};

TEST_F(Live, BuildsTheSpaceOfAProblemOnceWithItsPreset) {
  open(live_options({}));
  const testing_support::TwiceOperator twice;
  const ProblemPtr asked = twice.parse("twice " + ProblemPtr(vit_b_attention())->text());
  const SearchSpace built = evaluator->space(asked);
  EXPECT_EQ(twice.spaces, 1);
  ASSERT_TRUE(built.preset);
  EXPECT_EQ(built.configs[*built.preset], default_config(*asked, evaluator->device()));
}

TEST_F(Live, CompilesPrunesVerifiesAndMeasures) {
  open(live_options({}));
  EXPECT_EQ(evaluator->device().key(), test::fake_device().key());
  EXPECT_EQ(evaluator->compiler_version(), "nvrtc 13.0 0123456789ab");
  begin(vit_b_attention());
  EXPECT_TRUE(space->preset);
  int ok = 0;
  for (const auto& [id, trial] : run(40)) {
    EXPECT_EQ(trial.kernel_key, evaluator->key(trial.config));
    EXPECT_EQ(trial.origin, Origin::kMeasured);
    EXPECT_EQ(trial.compile.registers, 64);
    if (trial.status == TrialStatus::kPruned) {
      EXPECT_FALSE(trial.reason.empty());
      EXPECT_THAT(launched, ::testing::Not(::testing::Contains(trial.config)));
      continue;
    }
    EXPECT_EQ(trial.status, TrialStatus::kOk) << trial.reason;
    EXPECT_GT(trial.compile.shared_bytes, 0);
    EXPECT_DOUBLE_EQ(trial.measurement.cold.median_us, test::fake_us(trial.config));
    ++ok;
  }
  EXPECT_GT(ok, 10);
  EXPECT_EQ(launched.size(), static_cast<std::size_t>(ok));
}

TEST_F(Live, OnlyTheJudgeOfTheOperatorAskedForIsCompiledOnceAndSentOnce) {
  const auto compiles = directory / "compiles", judges = directory / "judges";
  LiveOptions options = live_options({"judges=" + judges.string()});
  options.compile.worker_command.push_back("log=" + compiles.string());
  open(options);
  for (int problems = 0; problems < 2; ++problems) {
    begin(vit_b_attention());
    run(20);
  }
  std::map<std::string, int> counts;
  for (const std::string& entry : test::lines_of(compiles)) ++counts[entry];
  for (const Operator* each : operators()) {
    EXPECT_EQ(counts[each->judge_entries().front()], each == &attention()) << each->name();
  }
  const auto seen = test::lines_of(judges);
  ASSERT_GT(seen.size(), 2u);
  EXPECT_EQ(seen[0], "sent");
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "known"), std::ssize(seen) - 1);
}

TEST_F(Live, WhatVerifiesNothingNeedsNoJudge) {
  const auto compiles = directory / "compiles", judges = directory / "judges";
  LiveOptions options = live_options({"judges=" + judges.string()});
  options.compile.worker_command.push_back("log=" + compiles.string());
  open(options);
  begin(vit_b_attention());
  evaluator->submit(0, {preset(), {}, false, true});
  EXPECT_EQ(collect(1).at(0).status, TrialStatus::kOk);
  EXPECT_THAT(test::lines_of(judges), ::testing::ElementsAre("none"));
  EXPECT_THAT(test::lines_of(compiles),
              ::testing::Not(::testing::Contains(attention().judge_entries().front())));
}

TEST_F(Live, AJudgeThatDoesNotCompileEndsTheRunBeforeAnyCandidateIsLaunched) {
  LiveOptions options = live_options({});
  options.compile.worker_command.push_back("fail=" + attention().judge_entries().front());
  open(options);
  begin(vit_b_attention());
  evaluator->submit(0, {preset(), {}, true, true});
  const Error error = error_of([&] { collect(1); });
  EXPECT_THAT(error.what(), HasSubstr("judge candidates of 'attention' do not compile"));
  EXPECT_TRUE(launched.empty());
}

TEST_F(Live, ABlockedKernelIsNeitherCompiledNorLaunched) {
  open(live_options({}));
  begin(vit_b_attention());
  blocked.insert(evaluator->key(preset()));
  evaluator->submit(7, {preset(), {}, true, true});
  const Trial trial = collect(1).at(7);
  EXPECT_EQ(trial.status, TrialStatus::kTimeout);
  EXPECT_THAT(trial.reason, HasSubstr("hung before"));
  EXPECT_TRUE(launched.empty());
}

TEST_F(Live, AHangingCandidateTimesOutAndTheOthersRun) {
  LiveOptions options = live_options({"do=hang", "match=kStages=2"});
  // Long enough for those that do not hang, on a machine that stands still for a while.
  options.base_deadline = options.trial_limit = std::chrono::seconds(4);
  open(options);
  begin(vit_b_attention());
  std::vector<Config> some;
  for (const Config& candidate : space->configs) {
    const bool wanted = candidate.find("kStages") == 2 && some.size() < 2;
    if (wanted || (candidate.find("kStages") != 2 && some.size() >= 2 && some.size() < 8))
      some.push_back(candidate);
  }
  ASSERT_EQ(some.size(), 8u);
  for (std::size_t i = 0; i < some.size(); ++i) evaluator->submit(i, {some[i], {}, true, true});
  int hung = 0, ok = 0;
  for (const auto& [id, trial] : collect(some.size())) {
    hung += trial.status == TrialStatus::kTimeout;
    ok += trial.status == TrialStatus::kOk;
    if (trial.status != TrialStatus::kTimeout) continue;
    EXPECT_THAT(trial.config.text(), HasSubstr("kStages=2"));
  }
  EXPECT_GE(hung, 1);
  EXPECT_GE(ok, 1);
}

TEST_F(Live, ACandidateIsTriedTwiceBeforeItCountsAsOneThatDoesNotEnd) {
  const auto log = directory / "log";
  LiveOptions options = live_options({"do=hang", "log=" + log.string()});
  options.base_deadline = options.trial_limit = test::kBrief;
  open(options);
  begin(vit_b_attention());
  evaluator->submit(0, {preset(), {}, true, true});
  const Trial trial = collect(1).at(0);
  EXPECT_EQ(trial.status, TrialStatus::kTimeout) << trial.reason;
  EXPECT_EQ(test::lines_of(log).size(), 2u);
}

TEST_F(Live, ACandidateWhoseWorkerFailedItOnceIsJudgedByTheNext) {
  const auto log = directory / "log", marker = directory / "marker";
  for (const char* script : {"hang", "stop"}) {
    SCOPED_TRACE(script);
    std::filesystem::remove(marker);
    LiveOptions options = live_options(
        {std::string("do=") + script, "once=" + marker.string(), "log=" + log.string()});
    const bool hangs = std::string(script) == "hang";
    if (hangs) options.base_deadline = options.trial_limit = 10 * test::kBrief;
    if (!hangs) options.bench.stall_limit = 10 * test::kBrief;
    open(options);
    begin(vit_b_attention());
    evaluator->submit(0, {preset(), {}, true, true});
    const Trial trial = collect(1).at(0);
    EXPECT_EQ(trial.status, TrialStatus::kOk) << trial.reason;
  }
}

TEST_F(Live, ARaceWhoseWorkerFailedItOnceIsHeldAgain) {
  const auto marker = directory / "marker";
  for (const char* script : {"race hang", "race stop"}) {
    SCOPED_TRACE(script);
    std::filesystem::remove(marker);
    LiveOptions options = live_options({std::string("do=") + script, "once=" + marker.string()});
    const bool hangs = std::string(script) == "race hang";
    if (hangs) options.race_limit = 10 * test::kBrief;
    if (!hangs) options.bench.stall_limit = 10 * test::kBrief;
    open(options);
    begin(vit_b_attention());
    const RaceResult result = evaluator->race({preset()}, 2, 0);
    EXPECT_EQ(result.status, TrialStatus::kOk) << result.reason;
  }
}

TEST_F(Live, AKernelThatTheMachineDidNotGetToCompileIsNoWinnersAndIsAskedForAgain) {
  LiveOptions options = live_options({});
  open(options);
  begin(vit_b_attention());
  evaluator->submit(0, {preset(), {}, true, true});
  ASSERT_EQ(collect(1).at(0).status, TrialStatus::kOk);
  options.compile.worker_command[1] = "silent compile";
  options.compile.wall_limit = test::kBrief;
  const Error error = error_of([&] { open(options); });
  EXPECT_THAT(error.what(), HasSubstr("too busy to compile"));
}

TEST_F(Live, RacesGiveEveryContestantATimingAndSamples) {
  open(live_options({}));
  begin(vit_b_attention());
  const auto trials = run(30);
  std::vector<Config> contestants;
  for (const auto& [id, trial] : trials) {
    if (trial.status == TrialStatus::kOk && contestants.size() < 4)
      contestants.push_back(trial.config);
  }
  ASSERT_EQ(contestants.size(), 4u);
  const RaceResult result = evaluator->race(contestants, 20, 0);
  ASSERT_EQ(result.status, TrialStatus::kOk) << result.reason;
  ASSERT_EQ(result.measurements.size(), 4u);
  EXPECT_EQ(result.cold_us[3].size(), 20u);
  const double us = test::fake_us(contestants[2]);
  EXPECT_NEAR(result.measurements[2].cold.median_us, us, 0.002 * us);  // the noise of one sample
  const auto binary = evaluator->binary(contestants[0]);
  ASSERT_TRUE(binary);
  EXPECT_EQ(binary->kernel_key, evaluator->key(contestants[0]));
  EXPECT_EQ(binary->arch, "sm_90");
  EXPECT_FALSE(binary->image.empty());
}

TEST_F(Live, ARaceOfLongCallsHasTheTimeThatTheyNeed) {
  LiveOptions options = live_options({"do=long calls"});
  options.base_deadline = milliseconds(1);
  open(options);
  begin(vit_b_attention());
  const Config config = preset();
  evaluator->submit(0, {config, {}, true, true});
  EXPECT_EQ(collect(1).at(0).status, TrialStatus::kOk);
  const RaceResult result = evaluator->race({config}, 2, 0);
  EXPECT_EQ(result.status, TrialStatus::kOk) << result.reason;
}

TEST_F(Live, SeveralDevicesShareTheCandidates) {
  LiveOptions options = live_options({"do=slow", "log=" + (directory / "log").string(),
                                      "count=" + (directory / "count").string()});
  options.devices = {0, 1, 2};
  open(options);
  EXPECT_EQ(std::filesystem::file_size(directory / "count"), 3u);
  EXPECT_GE(evaluator->worker_pids().size(), 3u);
  begin(vit_b_attention());
  run(30);
}

TEST_F(Live, ADeviceOfAnotherKindIsLeftOut) {
  LiveOptions options = live_options({"start=other kind"});
  options.devices = {0, 1};
  open(options);
  EXPECT_EQ(evaluator->device().sm_count, 132);
  EXPECT_THAT(messages, HasSubstr("another kind"));
}

TEST_F(Live, NoDeviceIsSaidInOneLine) {
  const Error error = error_of([&] { open(live_options({"start=no device"})); });
  EXPECT_EQ(error.code(), ErrorCode::kNoDevice);
  EXPECT_THAT(error.what(), HasSubstr("no CUDA-capable device"));
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
}

TEST_F(Live, ALostDeviceEndsTheRunWithoutBlamingTheCandidate) {
  open(live_options({"start=lost later", "do=segv", "count=" + (directory / "count").string()}));
  begin(vit_b_attention());
  evaluator->submit(0, {preset(), {}, true, true});
  const Error error = error_of([&] {
    for (int i = 0; i < 600; ++i) ASSERT_FALSE(evaluator->wait(milliseconds(100)));
  });
  EXPECT_EQ(error.code(), ErrorCode::kNoDevice);
  EXPECT_THAT(error.what(), HasSubstr("probe"));
}

TEST_F(Live, StoppingEndsARaceAtOnce) {
  open(live_options({}));
  begin(vit_b_attention());
  stop = true;
  const Error error = error_of([&] { evaluator->race({preset()}, 10, 0); });
  EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
}

TEST_F(Live, AKernelThatServesTwoProblemsIsCompiledOnce) {
  // Same shape of work, other batch: configs that take sizes as arguments share their kernel.
  open(live_options({"log=" + (directory / "log").string()}));
  begin(vit_b_attention());
  const Digest first = evaluator->key(preset());
  const Config config = preset();
  evaluator->submit(0, {config, {}, true, true});
  collect(1);
  begin(AttentionProblem::parse("attention bf16 b=8 h=12 nq=197 nk=197 d=64 layout=packed"));
  if (evaluator->key(config) != first) GTEST_SKIP() << "the default holds the batch as a constant";
  evaluator->submit(1, {config, {}, true, true});
  collect(1);
  const auto lines = test::lines_of(directory / "log");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("known"));
}

TEST(VariantCache, DropsWhatWasUsedLeastRecently) {
  VariantCache cache(3000);
  const auto add = [&](const char* name) {
    CompileResult result;
    result.cubin.resize(1000);
    cache.add(sha256(name), result);
  };
  add("a");
  add("b");
  EXPECT_TRUE(cache.find(sha256("a")));
  add("c");
  EXPECT_TRUE(cache.find(sha256("a")));
  EXPECT_FALSE(cache.find(sha256("b")));
  EXPECT_LE(cache.bytes(), 3000u);
}

}  // namespace
}  // namespace vitune
