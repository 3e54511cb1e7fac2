// tests/tuner/tune_together_test.cpp -- Processes that tune the same problem into one database.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <mutex>
#include <optional>
#include <thread>

#include "tests/patience.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/test_support.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

NamedProblem named(const std::string& text) {
  NamedProblem problem;
  problem.name = text;
  problem.problem = parse_problem(text);
  return problem;
}

class TuneTogether : public ::testing::Test {
 protected:
  static constexpr int kSearched = 10, kFoundThere = 11;

  TuneTogether() {
    options.problems = {named("attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed")};
    options.strategy = Strategy::kRandom;
    options.budget.trials = 30;
    options.compile_workers = 1;
    options.compile_worker_command = test::fake_compile_command();
    options.bench_worker_command = test::fake_bench_command({"do=slow", "log=" + jobs().string()});
  }
  ~TuneTogether() override {
    for (const pid_t pid : children_) end(pid, SIGKILL);
  }

  std::filesystem::path jobs() const { return directory_ / "jobs"; }
  LayeredStore open() const {
    return LayeredStore(Store::open(directory_ / "vitune.db", Access::kReadWrite), nullptr);
  }
  ProblemKey key(std::size_t index) const {
    return {"attention", options.problems.at(index).problem->text()};
  }
  // A process that tunes options.problems; its exit status says what became of the first.
  pid_t spawn() {
    const pid_t pid = fork();
    if (pid != 0) {
      children_.push_back(pid);
      return pid;
    }
    int status = 1;
    try {
      LayeredStore store = open();
      const std::atomic<bool> never{false};
      const TuneOutcome outcome = tune(options, store, {}, {}, never).outcomes.at(0);
      if (outcome.winner) status = outcome.resumed ? kFoundThere : kSearched;
    } catch (...) {
    }
    _exit(status);
  }
  int end(pid_t pid, int signal = 0) {
    std::erase(children_, pid);
    if (signal != 0) kill(pid, signal);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool is_searching() const {
    return test::soon([this] { return test::lines_of(jobs()).size() >= 3; });
  }
  // tune() in this process; once it waits for another one, `when_waiting` is called.
  TuneReport run(const std::function<void()>& when_waiting) {
    LayeredStore store = open();
    return tune(
        options, store, {},
        [&](LogLevel, std::string_view text) {
          messages_ += std::string(text) + "\n";
          if (text.find("waiting for another process") == text.npos) return;
          ++waits_;
          when_waiting();
        },
        stop_);
  }

  test::TemporaryDirectory directory_;
  TuneOptions options;
  std::atomic<bool> stop_{false};
  std::string messages_;
  int waits_ = 0;

 private:
  std::vector<pid_t> children_;
};

TEST_F(TuneTogether, OfThreeOneSearchesAndTheOthersFindItsWinner) {
  const std::vector<pid_t> tuners = {spawn(), spawn(), spawn()};
  int searched = 0, found_there = 0;
  for (const pid_t tuner : tuners) {
    const int status = end(tuner);
    searched += status == kSearched;
    found_there += status == kFoundThere;
  }
  EXPECT_EQ(searched, 1);
  EXPECT_EQ(found_there, 2);
}

TEST_F(TuneTogether, WhereTheOneThatSearchesIsKilledAnotherGoesOnWithItsTrials) {
  options.budget.trials = 100000;  // that it comes to no end before it is waited for
  const pid_t first = spawn();
  ASSERT_TRUE(is_searching());
  options.budget.trials = 60;
  const TuneReport report = run([&] { EXPECT_EQ(end(first, SIGKILL), 128 + SIGKILL); });
  EXPECT_EQ(waits_, 1) << messages_;
  ASSERT_TRUE(report.outcomes[0].winner) << messages_;
  EXPECT_FALSE(report.outcomes[0].resumed);
}

TEST_F(TuneTogether, WhatNobodyWorksOnIsTunedBeforeAnythingIsWaitedForAndCtrlCEndsTheWait) {
  options.budget.trials = 100000;
  const pid_t other = spawn();
  ASSERT_TRUE(is_searching());
  options.problems.push_back(named("attention bf16 b=2 h=2 nq=21 nk=21 d=16 layout=packed"));
  options.budget.trials = 3;
  const TuneReport report = run([this] { stop_ = true; });
  EXPECT_EQ(waits_, 1) << messages_;
  EXPECT_THAT(messages_, HasSubstr("vitune.db"));
  EXPECT_TRUE(report.interrupted);
  EXPECT_FALSE(report.outcomes.at(0).winner);
  EXPECT_TRUE(report.outcomes.at(1).winner) << messages_;
  end(other, SIGKILL);
}

TEST_F(TuneTogether, WhereNoLockFileCanBeEachSearchesForItself) {
  std::filesystem::create_directory(directory_ / "vitune.db.lock");
  const pid_t other = spawn();
  ASSERT_TRUE(is_searching());
  options.budget.trials = 3;
  const TuneReport report = run([] {});
  EXPECT_EQ(waits_, 0);
  EXPECT_TRUE(report.outcomes[0].winner) << messages_;
  EXPECT_THAT(messages_, HasSubstr("whoever else does"));
  end(other, SIGKILL);
}

}  // namespace
}  // namespace vitune
