// tests/tuner/tune_process_test.cpp -- Whole runs with worker processes and a database file: bad
// candidates, kill -9 at random moments, the real compiler.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "core/env.h"
#include "generator/compile_options.h"
#include "generator/compiler.h"
#include "generator/operator.h"
#include "tests/patience.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/test_support.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using test::fake_bench_command;
using test::fake_compile_command;
using ::testing::HasSubstr;

constexpr int kKills = 20;  // a long run raises it

class TuneProcess : public ::testing::Test {
 protected:
  TuneProcess() {
    NamedProblem named;
    named.problem = parse_problem("attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed");
    named.name = "ViT-B/16";
    options.problems = {named};
    options.strategy = Strategy::kRandom;
    options.budget.trials = 60;
    options.compile_workers = 2;
    options.compile_worker_command = fake_compile_command();
    options.bench_worker_command = fake_bench_command();
  }
  LayeredStore open() {
    return LayeredStore(Store::open(directory / "vitune.db", Access::kReadWrite), nullptr);
  }
  TuneReport run() {
    LayeredStore store = open();
    return tune(
        options, store, {},
        [this](LogLevel, std::string_view text) { messages += std::string(text) + "\n"; }, stop);
  }
  VerifyReport verify(LayeredStore& store) {
    return verify_winners(
        options, {Objective::kCold, Objective::kWarm}, store,
        [this](LogLevel, std::string_view text) { messages += std::string(text) + "\n"; }, stop);
  }
  ProblemKey key() const { return {"attention", options.problems[0].problem->text()}; }

  test::TemporaryDirectory directory;
  TuneOptions options;
  std::atomic<bool> stop{false};
  std::string messages;
};

TEST_F(TuneProcess, TunesThroughWorkersIntoADatabaseFile) {
  const int children_before = test::children();
  const auto descriptors_before = test::open_descriptors();
  const TuneReport report = run();
  ASSERT_TRUE(report.outcomes[0].winner) << messages;
  EXPECT_EQ(report.device.key(), test::fake_device().key());
  LayeredStore store = open();
  EXPECT_TRUE(store.user().find_binary(report.outcomes[0].winner->kernel_key));
  EXPECT_TRUE(run().outcomes[0].resumed);
  EXPECT_EQ(test::children(), children_before);
  EXPECT_LE(test::open_descriptors(), descriptors_before + 2);  // the store that is open here
}

TEST_F(TuneProcess, BadCandidatesAmongGoodOnesAreBlockedAndAWinnerIsFound) {
  options.bench_worker_command = fake_bench_command({"do=segv", "match=kWarps=2 "});
  options.strategy = Strategy::kLocal;
  const TuneReport report = run();
  ASSERT_TRUE(report.outcomes[0].winner || !report.outcomes[0].message.empty());
  LayeredStore store = open();
  const DeviceInfo device = test::fake_device();
  std::size_t crashed = 0;
  for (const Trial& trial : store.user().trials(device, key())) {
    if (trial.status != TrialStatus::kCrash) continue;
    ++crashed;
    EXPECT_TRUE(store.user().is_blocked(trial.kernel_key, device));
    EXPECT_THAT(trial.reason, HasSubstr("signal 11"));
  }
  EXPECT_EQ(store.user().blocks().size(), crashed);
  EXPECT_TRUE(store.user().open_attempts(device).empty());
}

// Waits until a tune gave its bench worker that many jobs; whether it did.
bool gives_jobs(const std::filesystem::path& log, std::size_t jobs) {
  return test::soon([&] { return test::lines_of(log).size() >= jobs; });
}

TEST_F(TuneProcess, SettingTheStopFlagEndsEverythingWithinTwoSeconds) {
  const auto log = directory / "log";
  options.bench_worker_command = fake_bench_command({"do=slow", "log=" + log.string()});
  options.budget.trials = 100000;
  options.fresh = true;
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int tries = 0; tries < 10 && fastest >= milliseconds(2000); ++tries) {
    std::filesystem::remove(log);
    stop = false;
    std::chrono::steady_clock::time_point stopped;
    std::thread stopper([&] {
      EXPECT_TRUE(gives_jobs(log, 30));
      stopped = std::chrono::steady_clock::now();
      stop = true;
    });
    const TuneReport report = run();
    const auto ended = std::chrono::steady_clock::now();
    stopper.join();
    fastest = std::min(fastest, ended - stopped);
    EXPECT_TRUE(report.interrupted);
    EXPECT_EQ(test::children(), 0);
    LayeredStore store = open();
    EXPECT_TRUE(store.user().open_attempts(test::fake_device()).empty());
    EXPECT_GE(store.user().trials(test::fake_device(), key()).size(), 20U);
  }
  EXPECT_LT(fastest, milliseconds(2000));
}

// Runs a tune in a child, to be killed.
pid_t spawn_tune(const TuneOptions& options, const std::filesystem::path& database) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int status = 1;
  try {
    LayeredStore store(Store::open(database, Access::kReadWrite), nullptr);
    const std::atomic<bool> never{false};
    tune(options, store, {}, {}, never);
    status = 0;
  } catch (...) {
  }
  _exit(status);
}

TEST_F(TuneProcess, KilledAtRandomMomentsItLosesNothingAndRepeatsNothing) {
  const auto log = directory / "log";
  options.bench_worker_command = fake_bench_command({"do=slow", "log=" + log.string()});
  options.budget.trials = 3000;
  const DeviceInfo device = test::fake_device();
  std::mt19937_64 random(1);
  std::map<Config, Trial> committed;
  for (int round = 0; round < kKills; ++round) {
    std::filesystem::remove(log);
    const pid_t pid = spawn_tune(options, directory / "vitune.db");
    // Three rounds of four let it get going, however slow the machine; the others may hit the
    // start.
    const bool started = round % 4 == 0 || gives_jobs(log, 2 + random() % 12);
    std::this_thread::sleep_for(milliseconds(random() % (round % 4 == 0 ? 500 : 20)));
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(started) << "no job within a minute in round " << round;
    std::this_thread::sleep_for(milliseconds(50));  // its workers die with it
    LayeredStore store = open();
    ASSERT_TRUE(store.user().check().integrity_ok);
    std::map<Config, Trial> now;
    for (const Trial& trial : store.user().trials(device, key())) now.emplace(trial.config, trial);
    for (const auto& [config, trial] : committed) {
      ASSERT_TRUE(now.contains(config)) << "lost " << config.text();
      EXPECT_EQ(now.at(config), trial);
    }
    for (const std::string& line : test::lines_of(log)) {
      if (line.find("verify") == std::string::npos) continue;
      const Config config = Config::parse(line.substr(line.find(' ', line.find(' ') + 1) + 1));
      EXPECT_FALSE(committed.contains(config)) << "repeated " << config.text();
    }
    committed = now;
  }
  EXPECT_GT(committed.size(), static_cast<std::size_t>(kKills));
}

TEST_F(TuneProcess, TheRealCompilerMakesTheWinnersBinary) {
  try {
    Compiler::open(read_environment());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  options.compile_worker_command = {VITUNE_FAKE_WORKER, "real"};
  options.compile_deadline = 5 * test::kPatience;
  options.budget.trials = 6;
  const TuneReport report = run();
  ASSERT_TRUE(report.outcomes[0].winner) << report.outcomes[0].message << messages;
  LayeredStore store = open();
  const auto binary = store.user().find_binary(report.outcomes[0].winner->kernel_key);
  ASSERT_TRUE(binary);
  EXPECT_TRUE(cubin_is_well_formed(binary->image));
  EXPECT_GT(binary->compile.registers, 16);
}

TEST_F(TuneProcess, WinnersAreVerifiedAgainAndAWrongOneLosesItsTrust) {
  const TuneReport report = run();
  ASSERT_TRUE(report.outcomes[0].winner);
  LayeredStore store = open();
  EXPECT_TRUE(verify(store).failed.empty());
  const DeviceInfo device = test::fake_device();
  EXPECT_TRUE(store.user().find_winner(device, key(), Objective::kCold)->verified);
  options.bench_worker_command = fake_bench_command({"do=wrong"});
  ASSERT_EQ(verify(store).failed.size(), 1u);
  EXPECT_THAT(messages, HasSubstr("canary"));
  EXPECT_FALSE(store.user().find_winner(device, key(), Objective::kCold)->verified);
}

TEST_F(TuneProcess, AnImportedWinnerIsVerifiedMeasuredAndGetsItsBinary) {
  run();
  std::string exported;
  {
    LayeredStore store = open();
    exported = store.user().export_json();
  }
  LayeredStore other(Store::in_memory(), nullptr);
  other.user().import_json(exported);
  const DeviceInfo device = test::fake_device();
  ASSERT_FALSE(other.user().find_winner(device, key(), Objective::kCold)->verified);
  EXPECT_TRUE(verify(other).failed.empty());
  const auto winner = other.user().find_winner(device, key(), Objective::kCold);
  EXPECT_TRUE(winner->verified);
  EXPECT_EQ(winner->origin, Origin::kMeasured);
  EXPECT_TRUE(other.user().find_binary(winner->kernel_key));
}

// Times of a stranger, or of other kernels, say nothing of this kernel here.
TEST_F(TuneProcess, AVerifiedWinnerOfElsewhereOrOfOtherKernelsIsTimedAndDoesNotEndTheNextSearch) {
  const Winner good = *run().outcomes[0].winner;
  const DeviceInfo device = test::fake_device();
  for (const bool imported : {true, false}) {
    SCOPED_TRACE(imported);
    LayeredStore other(Store::in_memory(), nullptr);
    Winner winner = good;
    winner.trials = 5000;
    winner.measurement.cold = {1e-3, 1e-3, 1e-3, 1000};
    winner.origin = imported ? Origin::kImported : Origin::kMeasured;
    winner.verified = !imported;
    if (!imported) winner.kernel_key = sha256("kernels of before");
    other.user().promote(device, key(), winner, nullptr);
    EXPECT_TRUE(verify(other).failed.empty()) << messages;
    const Winner now = *other.user().find_winner(device, key(), Objective::kCold);
    EXPECT_EQ(now.kernel_key, good.kernel_key);
    EXPECT_GT(now.measurement.cold.median_us, 1e-3);
    EXPECT_EQ(now.trials, 0);
    EXPECT_FALSE(now.default_us || now.runner_up);
    const TuneReport again = tune(options, other, {}, {}, stop);
    EXPECT_FALSE(again.outcomes[0].resumed);
  }
}

TEST_F(TuneProcess, AWinnerKeyedByTheRuleOfBeforeIsVerifiedAsTheSameKernel) {
  Winner winner = *run().outcomes[0].winner;
  const DeviceInfo device = test::fake_device();
  const Problem& problem = *options.problems[0].problem;
  const CompileRequest request = problem.op().request(problem, winner.config, device.arch());
  Trial trial = *open().user().find_trial(device, key(), winner.config);
  ASSERT_EQ(winner.kernel_key, kernel_key(request, winner.compiler_version));
  winner.kernel_key = trial.kernel_key = text_kernel_key(request, winner.compiler_version);
  winner.image_digest.reset();
  winner.trials = 5000;
  LayeredStore other(Store::in_memory(), nullptr);
  other.user().put_trial(device, key(), trial);
  other.user().promote(device, key(), winner, nullptr);

  EXPECT_TRUE(verify(other).failed.empty()) << messages;

  const Winner now = *other.user().find_winner(device, key(), Objective::kCold);
  EXPECT_EQ(now.kernel_key, winner.kernel_key);
  EXPECT_EQ(now.measurement, winner.measurement) << "it is its own measurement";
  EXPECT_EQ(now.trials, 5000);
  EXPECT_TRUE(other.user().find_binary(winner.kernel_key, now.image_digest));
  EXPECT_EQ(other.user().find_trial(device, key(), winner.config), trial);
}

TEST_F(TuneProcess, AWinnerWhoseKernelCannotBeCompiledNowStaysWhatItIs) {
  const Winner good = *run().outcomes[0].winner;
  const DeviceInfo device = test::fake_device();
  const auto trial = open().user().find_trial(device, key(), good.config);
  options.compile_worker_command[1] = "dying compile";
  options.compile_worker_command.emplace_back("at=vitune_attention_forward");
  LayeredStore store = open();
  const VerifyReport report = verify(store);
  ASSERT_EQ(report.failed.size(), 1u);
  EXPECT_THAT(report.failed[0].why, HasSubstr("compile_crash"));
  EXPECT_EQ(store.find_winner(device, key(), good.objective), good);
  EXPECT_EQ(store.user().find_trial(device, key(), good.config), trial);
}

TEST_F(TuneProcess, WhatAnyLayerBlocksIsNotLaunched) {
  const Winner good = *run().outcomes[0].winner;
  const DeviceInfo device = test::fake_device();
  auto site = Store::in_memory();
  site->block(
      {good.kernel_key, device.key(), device.driver_version, TrialStatus::kTimeout, "hung"});
  std::vector<std::unique_ptr<Store>> sites;
  sites.push_back(std::move(site));
  LayeredStore layers(Store::open(directory / "vitune.db", Access::kReadWrite), nullptr, false,
                      std::move(sites));
  EXPECT_EQ(verify(layers).failed.size(), 1u);
  EXPECT_THAT(messages, HasSubstr("hung"));
  const TuneReport again = tune(options, layers, {}, {}, stop);
  ASSERT_TRUE(again.outcomes[0].winner);
  EXPECT_NE(again.outcomes[0].winner->kernel_key, good.kernel_key);
}

TEST_F(TuneProcess, AnImportOutsideTheSpaceFailsUncompiledAndTheNextImportTakesItsPlace) {
  const Winner good = *run().outcomes[0].winner;
  const std::string exported = open().user().export_json(false);
  const DeviceInfo device = test::fake_device();
  const auto with = [&](const char* name, std::int64_t value) {
    Config config = good.config;
    config.set(name, value);
    return config;
  };
  Config lacking;
  for (const auto& [name, value] : good.config) {
    if (name != "kBlockN") lacking.set(name, value);
  }
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const Config& bad : {with("kBlockN", 0), with("kHeadsPerCta", 0), with("kMinCtas", 0),
                            with("kWarps", huge), with("kNew", 1), lacking, Config{}}) {
    SCOPED_TRACE(bad.text());
    LayeredStore other(Store::in_memory(), nullptr);
    Winner winner = good;
    winner.config = bad;
    winner.origin = Origin::kImported;
    winner.verified = false;
    winner.measurement.cold = {1e-3, 1e-3, 1e-3, 1000};
    other.user().promote(device, key(), winner, nullptr);
    messages.clear();
    EXPECT_EQ(verify(other).failed.size(), 1u);
    EXPECT_THAT(messages, HasSubstr("not in the space"));
    const auto failed = other.user().find_winner(device, key(), Objective::kCold);
    EXPECT_FALSE(failed->verified);
    EXPECT_EQ(failed->origin, Origin::kImported);
    other.user().import_json(exported);
    EXPECT_EQ(other.user().find_winner(device, key(), Objective::kCold)->config, good.config);
  }
}

TEST_F(TuneProcess, AConfigFromBeforeATunableExistedIsStillJudged) {
  Winner winner = *run().outcomes[0].winner;
  Config older;
  for (const auto& [name, value] : winner.config) {
    if (name != "kEvenItems" || value != 0) older.set(name, value);
  }
  LayeredStore other(Store::in_memory(), nullptr);
  winner.config = older;
  other.user().promote(test::fake_device(), key(), winner, nullptr);
  EXPECT_TRUE(verify(other).failed.empty()) << messages;
}

TEST_F(TuneProcess, AnImportThatFailsItsJudgementStaysAnImport) {
  run();
  const std::string exported = open().user().export_json(false);
  LayeredStore other(Store::in_memory(), nullptr);
  other.user().import_json(exported);
  options.bench_worker_command = fake_bench_command({"do=wrong"});
  EXPECT_EQ(verify(other).failed.size(), 1u);
  const auto winner = other.user().find_winner(test::fake_device(), key(), Objective::kCold);
  EXPECT_EQ(winner->origin, Origin::kImported);
  EXPECT_FALSE(winner->verified);
}

TEST_F(TuneProcess, VerifyingLeavesNoTrialWithoutTimes) {
  const Config config = run().outcomes[0].winner->config;
  LayeredStore store = open();
  const DeviceInfo device = test::fake_device();
  const auto before = store.user().find_trial(device, key(), config);
  EXPECT_TRUE(verify(store).failed.empty());
  EXPECT_EQ(store.user().find_trial(device, key(), config), before);
  options.bench_worker_command = fake_bench_command({"do=memory"});
  EXPECT_EQ(verify(store).failed.size(), 1u);
  EXPECT_EQ(store.user().find_trial(device, key(), config), before);
  EXPECT_TRUE(store.user().find_winner(device, key(), Objective::kCold)->verified);
  store.user().prune(0);
  options.bench_worker_command = fake_bench_command();
  EXPECT_TRUE(verify(store).failed.empty());
  for (const Trial& trial : store.user().trials(device, key())) {
    EXPECT_GT(trial.measurement.cold.median_us, 0) << trial.config.text();
  }
}

TEST_F(TuneProcess, WinnersOfBothObjectivesAreJudgedAndCounted) {
  run();
  options.objective = Objective::kWarm;
  run();
  NamedProblem unknown;
  unknown.name = "never tuned";
  unknown.problem = parse_problem("attention bf16 b=1 h=1 nq=16 nk=16 d=32 layout=packed");
  options.problems.push_back(unknown);
  LayeredStore store = open();
  const VerifyReport report = verify(store);
  EXPECT_EQ(report.judged, 2);
  EXPECT_THAT(report.without_winner, ::testing::ElementsAre("never tuned"));
  EXPECT_EQ(verify_winners(options, {Objective::kWarm}, store, {}, stop).judged, 1);
}

}  // namespace
}  // namespace vitune
