// tests/generator/compile_pool_test.cpp -- The pool against workers that misbehave.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "core/error.h"
#include "tests/generator/compile_support.h"
#include "tests/generator/elf_image.h"

namespace vitune {
namespace {

using test::compile_one;
using test::compiles;
using test::job;
using test::kBrief;
using test::kPatience;

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::elf_image;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMemoryLimitWorks = false;  // a sanitizer reserves terabytes, so there is no limit
#else
constexpr bool kMemoryLimitWorks = true;
#endif

constexpr int kRounds = 2;  // of all mischief; 1,000 for a soak

CompilePoolOptions fake(const std::string& start, int workers = 1) {
  CompilePoolOptions options;
  options.workers = workers;
  options.deadline = kPatience;
  options.memory_limit_bytes = std::int64_t{1} << 30;
  options.worker_command = {VITUNE_FAKE_COMPILE_WORKER, start};
  return options;
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Children of this process that have ended and wait to be reaped, or run.
bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

ErrorCode error_code_of(const std::function<void()>& action, std::string* text = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kFailure;
}

TEST(CompilePool, AResultArrivesWholeAndUnderItsId) {
  CompilePool pool(fake("serve"));
  const CompileResult result = compile_one(pool, job("ok"));
  EXPECT_EQ(result.status, CompileStatus::kOk);
  EXPECT_EQ(result.cubin, elf_image());
  EXPECT_EQ(result.facts, (CompileFacts{32, 8, 256, 1.5}));
  EXPECT_EQ(result.log, "canned");
  const CompileResult error = compile_one(pool, job("error"));
  EXPECT_EQ(error.status, CompileStatus::kError);
  EXPECT_EQ(error.log, "k.cu(1): error: no");
}

TEST(CompilePool, EveryMischiefEndsOneJobOnlyAndTheNextCompileSucceeds) {
  const struct {
    const char* what;
    CompileStatus status;
    const char* log;
  } cases[] = {
      {"burn", CompileStatus::kTimeout, "processor time"},
      {"hang", CompileStatus::kTimeout, "try again"},
      {"stop", CompileStatus::kTimeout, "try again"},
      {"dribble", CompileStatus::kTimeout, "try again"},
      {"segv", CompileStatus::kCrash, ""},  // a sanitizer turns the signal into an exit
      {"exit 0", CompileStatus::kCrash, "exit status 0"},
      {"be killed", CompileStatus::kCrash, "signal 9"},
      {"half frame", CompileStatus::kCrash, "closed its connection"},
      {"garbage", CompileStatus::kCrash, "garbage"},
      {"huge length", CompileStatus::kCrash, "garbage"},
      {"wrong id", CompileStatus::kCrash, "not the result of its job"},
      {"no map", CompileStatus::kCrash, "not the result of its job"},
      {"bad cubin", CompileStatus::kCrash, "not the result of its job"},
      {"close", CompileStatus::kCrash, "closed its connection"},
      {"grandchild", CompileStatus::kTimeout, "try again"},
      {"last words", CompileStatus::kCrash, "ptxas says goodbye"},
      {"memory", kMemoryLimitWorks ? CompileStatus::kCrash : CompileStatus::kOk, ""},
      {"chatter", CompileStatus::kOk, "canned"},
      {"twice", CompileStatus::kOk, "canned"},
  };
  CompilePool patient(fake("serve"));
  CompilePoolOptions options = fake("serve");
  options.deadline = options.wall_limit = kBrief;
  CompilePool brief(options);
  options.wall_limit = kPatience;
  CompilePool thrifty(options);
  ASSERT_EQ(compile_one(patient, job("ok")).status, CompileStatus::kOk);
  ASSERT_TRUE(compiles(brief, job("ok")));
  ASSERT_TRUE(compiles(thrifty, job("ok")));
  const std::size_t descriptors = open_descriptors();
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [what, status, log] : cases) {
      const bool stands_still = std::string(log) == "try again";
      CompilePool& pool = stands_still                        ? brief
                          : status == CompileStatus::kTimeout ? thrifty
                                                              : patient;
      const auto start = steady_clock::now();
      const CompileResult result = compile_one(pool, job(what));
      EXPECT_EQ(result.status, status) << what << ": " << result.log.substr(0, 200);
      EXPECT_THAT(result.log, HasSubstr(log)) << what;
      EXPECT_LE(result.log.size(), 4096u) << what;
      const int limits = stands_still ? 2 : status == CompileStatus::kTimeout ? 1 : 0;
      EXPECT_GE(steady_clock::now() - start, limits * kBrief) << what;
      EXPECT_TRUE(compiles(pool, job("ok"))) << "after " << what;
      EXPECT_EQ(open_descriptors(), descriptors) << "descriptors leak with " << what;
      EXPECT_LE(pool.worker_pids().size(), 1u) << what;
    }
  }
}

TEST(CompilePool, AFloodOfWordsEndsByOneOfTheLimits) {
  CompilePoolOptions options = fake("serve");
  options.deadline = options.wall_limit = kBrief;
  CompilePool pool(options);
  EXPECT_EQ(compile_one(pool, job("flood")).status, CompileStatus::kTimeout);
  EXPECT_TRUE(compiles(pool, job("ok")));
}

TEST(CompilePool, ACompileWhoseWorkerStoodStillOrWasKilledIsBegunOnceMore) {
  const auto mark = std::filesystem::path(::testing::TempDir()) /
                    ("vitune_pool_mark_" + std::to_string(::getpid()));
  CompilePoolOptions options = fake("serve");
  options.worker_command.push_back(mark.string());
  options.wall_limit = 10 * kBrief;
  CompilePool pool(options);
  for (const char* what : {"stop once", "kill once", "end once"}) {
    EXPECT_EQ(compile_one(pool, job(what)).status, CompileStatus::kOk) << what;
    EXPECT_TRUE(std::filesystem::remove(mark)) << what;
  }
}

TEST(CompilePool, TheDeadlineDoesNotRunWhileTheWorkerIsStopped) {
  CompilePoolOptions options = fake("serve");
  options.deadline = kBrief;
  options.wall_limit = kPatience;
  CompilePool pool(options);
  ASSERT_TRUE(compiles(pool, job("ok")));
  pool.submit(1, job("stop"));
  EXPECT_FALSE(pool.wait(3 * kBrief));
  ASSERT_EQ(pool.worker_pids().size(), 1u);
  ASSERT_EQ(kill(pool.worker_pids().front(), SIGCONT), 0);
  const auto finished = pool.wait(kPatience);
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->second.status, CompileStatus::kOk) << finished->second.log;
}

TEST(CompilePool, WorkersThatDieAfterTheirHelloUseUpTheQueueAndNoMore) {
  CompilePool pool(fake("hello and die", 2));
  for (std::uint64_t id = 0; id < 6; ++id) pool.submit(id, job("ok"));
  for (int i = 0; i < 6; ++i) {
    const auto finished = pool.wait(kPatience);
    ASSERT_TRUE(finished);
    EXPECT_EQ(finished->second.status, CompileStatus::kCrash);
  }
  EXPECT_EQ(pool.pending(), 0u);
}

TEST(CompilePool, AWorkerThatNeverGetsReadyIsAnErrorAfterThreeTries) {
  const struct {
    const char* start;
    const char* text;
  } cases[] = {{"die", "exit status 7"},
               {"babble", "garbage"},
               {"silent", "was not ready within"},
               {"other protocol", "does not speak this program's protocol"}};
  for (const auto& [start, part] : cases) {
    CompilePoolOptions options = fake(start);
    options.hello_limit = std::string(start) == "silent" ? kBrief : kPatience;
    CompilePool pool(options);
    pool.submit(1, job("ok"));
    std::string text;
    EXPECT_EQ(error_code_of([&] { pool.wait(kPatience); }, &text), ErrorCode::kFailure) << start;
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, HasSubstr("3 times"));
    EXPECT_EQ(pool.pending(), 1u);
    EXPECT_EQ(error_code_of([&] { pool.compiler_version(); }), ErrorCode::kFailure) << start;
  }
}

TEST(CompilePool, AWorkerThatCannotBeStartedIsAnErrorAtOnce) {
  CompilePoolOptions options = fake("serve");
  options.worker_command = {VITUNE_FAKE_COMPILE_WORKER ".absent", "--worker=compile"};
  CompilePool pool(options);
  std::string text;
  EXPECT_EQ(error_code_of([&] { pool.submit(1, job("ok")); }, &text), ErrorCode::kFailure);
  EXPECT_THAT(text, HasSubstr(VITUNE_FAKE_COMPILE_WORKER ".absent"));
}

TEST(CompilePool, AMissingCompilerIsToldAsTheWorkerTellsIt) {
  CompilePool pool(fake("no compiler"));
  std::string text;
  EXPECT_EQ(error_code_of([&] { pool.compiler_version(); }, &text), ErrorCode::kNoCompiler);
  EXPECT_THAT(text, HasSubstr("no usable libnvrtc"));
  pool.submit(1, job("ok"));
  EXPECT_EQ(error_code_of([&] { pool.wait(kPatience); }), ErrorCode::kNoCompiler);
}

TEST(CompilePool, ACompilerThatChangesDuringTheRunIsAnError) {
  CompilePool pool(fake("changing"));
  ASSERT_EQ(compile_one(pool, job("ok")).status, CompileStatus::kOk);
  ASSERT_EQ(compile_one(pool, job("exit 0")).status, CompileStatus::kCrash);
  pool.submit(1, job("ok"));
  std::string text;
  EXPECT_EQ(error_code_of([&] { pool.wait(kPatience); }, &text), ErrorCode::kFailure);
  EXPECT_THAT(text, HasSubstr("changed"));
}

TEST(CompilePool, TheVersionIsAskedOnceAndWorkersStartWhenTheyAreNeeded) {
  CompilePool pool(fake("serve", 4));
  EXPECT_TRUE(pool.worker_pids().empty());
  EXPECT_EQ(pool.compiler_version(), "nvrtc 13.0 0123456789ab");
  ASSERT_EQ(pool.worker_pids().size(), 1u);
  const auto before = pool.worker_pids();
  EXPECT_EQ(pool.compiler_version(), "nvrtc 13.0 0123456789ab");
  EXPECT_EQ(compile_one(pool, job("ok")).status, CompileStatus::kOk);
  EXPECT_EQ(pool.worker_pids(), before);
}

TEST(CompilePool, TwoWorkersCompileAtTheSameTime) {
  std::string folder = ::testing::TempDir() + "vitune_pool_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  CompilePoolOptions options = fake("meet", 2);
  options.worker_command.push_back(folder);
  CompilePool pool(options);
  // Each worker answers only once it sees the other: one after the other would never end.
  pool.submit(1, job("ok"));
  pool.submit(2, job("ok"));
  std::set<std::uint64_t> ids;
  for (int i = 0; i < 2; ++i) {
    const auto finished = pool.wait(kPatience);
    ASSERT_TRUE(finished);
    EXPECT_EQ(finished->second.status, CompileStatus::kOk) << finished->second.log;
    ids.insert(finished->first);
  }
  EXPECT_EQ(ids, (std::set<std::uint64_t>{1, 2}));
  EXPECT_EQ(pool.worker_pids().size(), 2u);
  std::filesystem::remove_all(folder);
}

TEST(CompilePool, ManyJobsWithMischiefAmongThemAllComeBackOnce) {
  CompilePoolOptions options = fake("serve", 3);
  options.deadline = kBrief;  // of processor time: enough for all but one
  CompilePool pool(options);
  std::map<std::uint64_t, CompileStatus> expected;
  for (std::uint64_t id = 0; id < 120; ++id) {
    const bool dies = id % 10 == 3, lies = id % 10 == 7, burns = id == 50;
    pool.submit(id, job(burns ? "burn" : dies ? "exit 0" : lies ? "garbage" : "ok"));
    expected[id] = burns          ? CompileStatus::kTimeout
                   : dies || lies ? CompileStatus::kCrash
                                  : CompileStatus::kOk;
    EXPECT_LE(pool.worker_pids().size(), 3u);
  }
  EXPECT_EQ(pool.pending(), 120u);
  std::map<std::uint64_t, CompileStatus> actual;
  while (const auto finished = pool.wait(kPatience)) {
    EXPECT_TRUE(actual.emplace(finished->first, finished->second.status).second);
  }
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(pool.pending(), 0u);
}

TEST(CompilePool, AnIdIsPendingOnlyOnce) {
  CompilePool pool(fake("serve"));
  pool.submit(1, job("ok"));
  EXPECT_EQ(error_code_of([&] { pool.submit(1, job("ok")); }), ErrorCode::kFailure);
  ASSERT_TRUE(pool.wait(kPatience));
  EXPECT_NO_THROW(pool.submit(1, job("ok")));
}

TEST(CompilePool, WaitReturnsAtOnceWithoutWorkAndInTimeWithIt) {
  CompilePool pool(fake("serve"));
  const auto start = steady_clock::now();
  EXPECT_FALSE(pool.wait(kPatience));
  pool.submit(1, job("hang"));
  EXPECT_FALSE(pool.wait(milliseconds(20)));
  EXPECT_LT(steady_clock::now() - start, kPatience / 2);
  EXPECT_EQ(pool.pending(), 1u);
}

TEST(CompilePool, DescriptorsBecomeReadableWhenThereIsSomethingToDo) {
  CompilePool pool(fake("serve", 2));
  pool.submit(1, job("ok"));
  pool.submit(2, job("ok"));
  int found = 0;
  while (pool.pending() > 0) {
    std::vector<pollfd> sockets;
    for (const int fd : pool.descriptors()) sockets.push_back({fd, POLLIN, 0});
    ASSERT_GT(poll(sockets.data(), sockets.size(), static_cast<int>(kPatience.count())), 0);
    found += pool.wait(milliseconds(0)) ? 1 : 0;
  }
  EXPECT_EQ(found, 2);
}

TEST(CompilePool, AWorkerIsReplacedAfterFiveHundredCompiles) {
  CompilePool pool(fake("serve"));
  std::set<int> pids;
  for (int i = 0; i < 510; ++i) {
    ASSERT_EQ(compile_one(pool, job("ok")).status, CompileStatus::kOk);
    if (i == 490) pids.insert(pool.worker_pids().front());
  }
  pids.insert(pool.worker_pids().front());
  EXPECT_EQ(pids.size(), 2u);
}

TEST(CompilePool, NoProcessOrDescriptorIsLeftBehind) {
  const std::size_t before = open_descriptors();
  {
    CompilePool pool(fake("serve", 3));
    for (std::uint64_t id = 0; id < 3; ++id) pool.submit(id, job(id == 0 ? "hang" : "ok"));
    pool.wait(kPatience);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_FALSE(has_children());
}

TEST(CompilePool, OptionsThatMakeNoSenseAreRefused) {
  CompilePoolOptions none = fake("serve"), late = fake("serve"), nobody = fake("serve");
  nobody.workers = 0;
  late.deadline = milliseconds(0);
  none.worker_command.clear();
  for (const auto& options : {nobody, late, none}) EXPECT_THROW(CompilePool{options}, Error);
}

}  // namespace
}  // namespace vitune
