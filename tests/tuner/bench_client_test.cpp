// tests/tuner/bench_client_test.cpp -- Whatever a bench worker does, the parent lives, blames the
// right one, and the next job runs.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/bench_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "tests/patience.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/test_support.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::children;
using test::fake_bench_command;
using test::open_descriptors;
using ::testing::HasSubstr;

constexpr int kScriptRounds = 3;  // of each script; a long run raises it
// Limit of the scripts in which a worker stands still: longer than the machine should.
constexpr milliseconds kStallLimit{3000};

BenchClientOptions options_for(const std::vector<std::string>& worker) {
  BenchClientOptions options;
  options.command = fake_bench_command(worker);
  options.hello_deadline = test::kPatience;
  options.setup_deadline = test::kPatience;
  options.back_off = {milliseconds(10), milliseconds(20), milliseconds(30)};
  return options;
}

// Steps until `done`, or fails the test after a while; gives the first result.
template <typename Done>
std::optional<BenchResult> drive(BenchClient& client, Done done) {
  const auto until = steady_clock::now() + 2 * test::kPatience;
  while (steady_clock::now() < until) {
    if (auto result = client.step()) return result;
    if (done()) return std::nullopt;
    pollfd descriptor{client.descriptor(), POLLIN, 0};
    poll(&descriptor, 1, 5);
  }
  ADD_FAILURE() << "nothing happened";
  return std::nullopt;
}

void make_ready(BenchClient& client) {
  client.set_support({std::byte{1}});
  drive(client, [&] { return client.idle() || client.lost(); });
}

TrialJob job(const std::string& problem) {
  TrialJob result;
  result.problem = problem;
  result.kernel.config = Config{{"kWarps", 4}};
  result.kernel.kernel_key = sha256(problem);
  result.kernel.cubin = {std::byte{1}, std::byte{2}};
  return result;
}

std::optional<TrialReply> run(BenchClient& client, const std::string& problem,
                              milliseconds deadline = test::kPatience) {
  client.submit(job(problem), deadline);
  const auto result = drive(client, [&] { return client.lost(); });
  return result ? result->trial : std::nullopt;
}

TEST(BenchClient, LearnsTheDeviceAndRunsJobs) {
  BenchClient client(options_for({}), {});
  drive(client, [&] { return client.state() == BenchClient::State::kAwaitingSupport; });
  ASSERT_TRUE(client.device());
  EXPECT_EQ(client.device()->key(), test::fake_device().key());
  make_ready(client);
  ASSERT_TRUE(client.idle());
  const auto reply = run(client, "good");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, TrialStatus::kOk);
  EXPECT_GT(reply->measurement.cold.median_us, 0);
}

struct Fault {
  const char* script;
  TrialStatus status;
  const char* reason;
  bool replaced;  // a new worker is needed
  bool stalled = false;
};

class BenchClientFault : public ::testing::TestWithParam<Fault> {};

TEST_P(BenchClientFault, IsBlamedOnTheJobAndTheNextJobRuns) {
  const Fault& fault = GetParam();
  const milliseconds deadline =
      fault.status == TrialStatus::kTimeout ? test::kBrief : test::kPatience;
  const int children_before = children();
  const auto descriptors_before = open_descriptors();
  {
    BenchClientOptions options = options_for({std::string("do=") + fault.script, "match=bad"});
    if (fault.stalled) options.stall_limit = kStallLimit;
    BenchClient client(options, {});
    make_ready(client);
    ASSERT_TRUE(client.idle());
    auto fastest = steady_clock::duration::max();
    for (int round = 0; round < kScriptRounds; ++round) {
      const int pid = client.pid();
      client.submit(job("bad"), deadline);
      const auto result = drive(client, [&] { return client.lost(); });
      ASSERT_TRUE(result && result->trial) << client.problem();
      const auto& reply = result->trial;
      EXPECT_EQ(result->stalled, fault.stalled);
      EXPECT_EQ(reply->status, fault.status);
      EXPECT_THAT(reply->reason, HasSubstr(fault.reason));
      const auto since = steady_clock::now();
      const auto next = run(client, "good");
      fastest = std::min(fastest, steady_clock::now() - since);
      ASSERT_TRUE(next);
      EXPECT_EQ(next->status, TrialStatus::kOk);
      EXPECT_EQ(client.pid() != pid, fault.replaced);
    }
    EXPECT_LT(fastest, milliseconds(5000));  // a stall may delay the others
  }
  EXPECT_EQ(children(), children_before);
  EXPECT_EQ(open_descriptors(), descriptors_before);
}

INSTANTIATE_TEST_SUITE_P(
    Scripts, BenchClientFault,
    ::testing::Values(Fault{"hang", TrialStatus::kTimeout, "deadline", true},
                      Fault{"stop", TrialStatus::kTimeout, "stood still", true, true},
                      Fault{"be killed", TrialStatus::kTimeout, "was killed", true, true},
                      Fault{"be ended", TrialStatus::kTimeout, "signal 15", true, true},
                      Fault{"segv", TrialStatus::kCrash, "signal 11", true},
                      Fault{"exit 0", TrialStatus::kCrash, "exit status 0", true},
                      Fault{"exit 1", TrialStatus::kCrash, "exit status 1", true},
                      Fault{"half frame", TrialStatus::kCrash, "ended", true},
                      Fault{"dribble", TrialStatus::kTimeout, "stood still", true, true},
                      Fault{"garbage", TrialStatus::kCrash, "garbage", true},
                      Fault{"huge length", TrialStatus::kCrash, "garbage", true},
                      Fault{"wrong id", TrialStatus::kCrash, "not given", true},
                      Fault{"not cbor", TrialStatus::kCrash, "phase", true},
                      Fault{"wrong type", TrialStatus::kCrash, "wrong kind", true},
                      Fault{"close", TrialStatus::kCrash, "ended", true},
                      Fault{"late", TrialStatus::kTimeout, "deadline", true},
                      Fault{"heartbeats", TrialStatus::kTimeout, "deadline", true},
                      Fault{"answers then hang", TrialStatus::kTimeout, "\"verify\"", true},
                      Fault{"sticky", TrialStatus::kCrash, "illegal address", true},
                      Fault{"pruned", TrialStatus::kCrash, "cannot know", true},
                      Fault{"nan", TrialStatus::kCrash, "", true},
                      Fault{"wrong", TrialStatus::kWrong, "canary", false},
                      Fault{"memory", TrialStatus::kOutOfMemory, "no room", false},
                      Fault{"launch", TrialStatus::kInvalidLaunch, "threads", false},
                      Fault{"twice", TrialStatus::kOk, "", false}),
    [](const auto& script) {
      std::string name = script.param.script;
      for (char& c : name) c = c == ' ' ? '_' : c;
      return name;
    });

TEST(BenchClient, AHundredMegabytesOnStderrAreDroppedAndTheJobIsAnswered) {
  BenchClient client(options_for({"do=chatter", "match=bad"}), {});
  make_ready(client);
  const auto reply = run(client, "bad");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, TrialStatus::kOk);
}

struct Start {
  const char* script;
  const char* reason;
};

class BenchClientStart : public ::testing::TestWithParam<Start> {};

TEST_P(BenchClientStart, AWorkerThatNeverGetsReadyLosesTheDeviceWithTheReason) {
  const int children_before = children();
  {
    BenchClientOptions options = options_for({std::string("start=") + GetParam().script});
    if (std::string(GetParam().script) == "silent") options.hello_deadline = test::kBrief;
    BenchClient client(options, {});
    make_ready(client);
    ASSERT_TRUE(client.lost());
    EXPECT_THAT(client.problem(), HasSubstr(GetParam().reason));
    EXPECT_THAT(client.problem(), HasSubstr("GPU 0"));
  }
  EXPECT_EQ(children(), children_before);
}

INSTANTIATE_TEST_SUITE_P(Scripts, BenchClientStart,
                         ::testing::Values(Start{"die", "exit status 7"},
                                           Start{"silent", "hello in time"},
                                           Start{"babble", "garbage"},
                                           Start{"hello and die", "exit status 0"},
                                           Start{"bad probe", "the probe gave nonsense"},
                                           Start{"no device", "no CUDA-capable device"},
                                           Start{"other protocol", "version 7"}),
                         [](const auto& script) {
                           std::string name = script.param.script;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

TEST(BenchClient, AMissingProgramLosesTheDevice) {
  BenchClientOptions options = options_for({});
  options.command = {VITUNE_FAKE_WORKER ".absent"};
  BenchClient client(options, {});
  make_ready(client);
  EXPECT_TRUE(client.lost());
  EXPECT_THAT(client.problem(), HasSubstr(VITUNE_FAKE_WORKER ".absent"));
}

TEST(BenchClient, AWorkerWithoutADeviceIsAskedOnce) {
  test::TemporaryDirectory directory;
  const std::string count = (directory / "count").string();
  BenchClient client(options_for({"start=no device", "count=" + count}), {});
  make_ready(client);
  EXPECT_TRUE(client.lost());
  EXPECT_EQ(std::filesystem::file_size(count), 1u);
}

TEST(BenchClient, ADeviceThatFailsItsProbeAfterACrashIsLostAndTheJobIsNotBlamed) {
  test::TemporaryDirectory directory;
  BenchClient client(options_for({"start=lost later", "do=segv", "match=bad",
                                  "count=" + (directory / "count").string()}),
                     {});
  make_ready(client);
  ASSERT_TRUE(client.idle());
  EXPECT_FALSE(run(client, "bad"));
  EXPECT_TRUE(client.lost());
  EXPECT_THAT(client.problem(), HasSubstr("probe"));
}

// True if the process is stopped.
bool is_stopped(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text.find(") T ") != std::string::npos;
}

TEST(BenchClient, AJobIsNotChargedForTheTimeInWhichItsWorkerIsStopped) {
  BenchClient client(options_for({"do=stop", "match=bad"}), {});
  make_ready(client);
  // More than the first sign of life after the stop may cost.
  constexpr milliseconds kDeadline{2000};
  client.submit(job("bad"), kDeadline);
  ASSERT_TRUE(test::soon([&] { return is_stopped(client.pid()); }));
  const auto go_on = steady_clock::now() + 2 * kDeadline;
  EXPECT_FALSE(drive(client, [&] { return steady_clock::now() > go_on; }));
  ASSERT_EQ(kill(client.pid(), SIGCONT), 0);
  const auto result = drive(client, [&] { return client.lost(); });
  ASSERT_TRUE(result && result->trial) << client.problem();
  EXPECT_EQ(result->trial->status, TrialStatus::kOk) << result->trial->reason;
}

TEST(BenchClient, ADeviceWhoseWorkersStandStillThreeTimesInARowIsLost) {
  BenchClientOptions options = options_for({"do=stop", "match=bad"});
  options.stall_limit = test::kBrief;
  BenchClient client(options, {});
  make_ready(client);
  int ended = 0;
  for (; !client.lost(); ++ended) {
    ASSERT_LT(ended, 3);
    client.submit(job("bad"), test::kPatience);
    const auto result = drive(client, [&] { return client.lost(); });
    if (result) {
      EXPECT_TRUE(result->stalled);
    }
    drive(client, [&] { return client.idle() || client.lost(); });
  }
  EXPECT_THAT(client.problem(), HasSubstr("stood still"));
}

TEST(BenchClient, AStoppedWorkerThatDoesNotTakeItsJobSaysNothingOfTheJob) {
  BenchClient client(options_for({}), {});
  make_ready(client);
  ASSERT_EQ(kill(client.pid(), SIGSTOP), 0);
  TrialJob large = job("good");
  large.kernel.cubin.resize(16 << 20);  // more than a socket holds
  client.submit(large, test::kPatience);
  const auto result = drive(client, [&] { return client.lost(); });
  ASSERT_TRUE(result && result->trial) << client.problem();
  EXPECT_TRUE(result->stalled);
  EXPECT_NE(result->trial->status, TrialStatus::kCrash);
}

TEST(BenchClient, AJobIsNotChargedForTheRightAnswersItIsJudgedBy) {
  BenchClient client(options_for({"do=answers", "match=long"}), {});
  make_ready(client);
  bool passed = false;  // a stall of the machine may spoil single tries
  for (int tries = 0; tries < 10 && !passed; ++tries) {
    const auto reply = run(client, "long", test::kBrief);
    ASSERT_TRUE(reply) << client.problem();
    passed = reply->status == TrialStatus::kOk;
    drive(client, [&] { return client.idle(); });
  }
  EXPECT_TRUE(passed);
}

TEST(BenchClient, RightAnswersThatTakeTooLongAreNoFaultOfTheJob) {
  for (const char* script : {"answers hang", "phases in turn"}) {
    BenchClientOptions options = options_for({std::string("do=") + script, "match=long"});
    options.reference_limit = test::kBrief;
    BenchClient client(options, {});
    make_ready(client);
    EXPECT_FALSE(run(client, "long")) << script;
    EXPECT_TRUE(client.lost()) << script;
    EXPECT_THAT(client.problem(), HasSubstr("too long to be judged")) << script;
  }
}

TEST(BenchClient, SendsACubinOncePerWorker) {
  test::TemporaryDirectory directory;
  const auto log = directory / "log";
  BenchClient client(options_for({"do=segv", "match=bad", "log=" + log.string()}), {});
  make_ready(client);
  run(client, "good");
  run(client, "good");
  run(client, "bad");
  run(client, "good");
  const auto lines = test::lines_of(log);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("sent"));
  EXPECT_THAT(lines[1], HasSubstr("known"));
  EXPECT_THAT(lines[3], HasSubstr("sent"));
}

TEST(BenchClient, SendsAJudgeOncePerWorkerAndOnlyWithWhatItJudges) {
  test::TemporaryDirectory directory;
  const auto log = directory / "judges";
  BenchClient client(options_for({"do=segv", "match=bad", "judges=" + log.string()}), {});
  make_ready(client);
  for (const char* const name : {"good", "another", "bad", "good"}) {
    TrialJob judged = job(name);
    judged.judge = {sha256("judge"), {std::byte{7}}};
    client.submit(judged, test::kPatience);
    drive(client, [&] { return client.lost(); });
    drive(client, [&] { return client.idle() || client.lost(); });
  }
  EXPECT_THAT(test::lines_of(log), ::testing::ElementsAre("sent", "known", "known", "sent"));
}

TEST(BenchClient, ReplacesAWorkerAfterManyJobs) {
  BenchClientOptions options = options_for({});
  options.recycle_jobs = 2;
  BenchClient client(options, {});
  make_ready(client);
  const int pid = client.pid();
  run(client, "a");
  client.recycle_if_due();
  EXPECT_EQ(client.pid(), pid);
  run(client, "b");
  client.recycle_if_due();
  EXPECT_FALSE(client.idle());
  drive(client, [&] { return client.idle(); });
  EXPECT_NE(client.pid(), pid);
  EXPECT_EQ(run(client, "c")->status, TrialStatus::kOk);
}

TEST(BenchClient, AWorkerThatDiesIdleIsReplacedWithoutBlame) {
  BenchClient client(options_for({}), {});
  make_ready(client);
  const int pid = client.pid();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  drive(client, [&] { return client.idle() && client.pid() != pid; });
  EXPECT_EQ(run(client, "good")->status, TrialStatus::kOk);
}

TEST(BenchClient, RacesGiveSamplesOfEveryContestant) {
  BenchClient client(options_for({}), {});
  make_ready(client);
  RaceJob race;
  race.problem = "p";
  for (const std::int64_t warps : {1, 2, 4}) {
    KernelRef kernel = job("k" + std::to_string(warps)).kernel;
    kernel.config.set("kWarps", warps);
    race.contestants.push_back(kernel);
  }
  race.rounds = 10;
  client.submit(race, test::kPatience);
  const auto result = drive(client, [&] { return client.lost(); });
  ASSERT_TRUE(result && result->race);
  EXPECT_EQ(result->race->cold_us.size(), 3u);
  EXPECT_EQ(result->race->cold_us[0].size(), 10u);
}

}  // namespace
}  // namespace vitune
