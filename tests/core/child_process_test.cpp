// tests/core/child_process_test.cpp -- A child may do anything; its parent stays whole and in time.
// SPDX-License-Identifier: Apache-2.0
#include "core/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "tests/patience.h"

namespace vitune {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;
using Receive = ChildProcess::Receive;

ChildOptions fake(std::vector<std::string> arguments) {
  ChildOptions options;
  options.command = {VITUNE_FAKE_CHILD};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return options;
}

// The payload of the child's next frame; fails the test if none comes.
std::string next_payload(ChildProcess& child) {
  Frame frame;
  EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kFrame) << child.output();
  return frame.payload;
}

// Neither running nor stopped: no process of this number, or a zombie that init has yet to reap.
bool gone(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return true;
  return text.substr(text.rfind(')') + 2, 1) == "Z";
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(ChildProcessTest, FramesComeBackFromAnEcho) {
  ChildProcess child(fake({"echo"}));
  for (const std::size_t size : {0ul, 1ul, 100'000ul, std::size_t{20} << 20}) {
    ASSERT_TRUE(child.send({7, size, std::string(size, 'p')}, test::kPatience));
    Frame frame;
    ASSERT_EQ(child.receive(frame, test::kPatience), Receive::kFrame);
    EXPECT_EQ(frame.type, 7u);
    EXPECT_EQ(frame.id, size);
    EXPECT_EQ(frame.payload, std::string(size, 'p'));
  }
}

TEST(ChildProcessTest, TheFencesStandBeforeTheProgramRuns) {
  const int original = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int leaked = fcntl(original, F_DUPFD, 50);  // not close-on-exec, and far from descriptor 3
  ASSERT_GE(leaked, 50);
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  ChildProcess child(fake({"inspect"}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);
  close(leaked);
  close(original);
  const std::string facts = next_payload(child);
  for (const char* fact :
       {"fd 0\n", "fd 1\n", "fd 2\n", "fd 3\n", "stdin /dev/null\n", "group own\n",
        "new privileges 1\n", "death signal 9\n", "core 0\n", "blocked 0\n", "sigpipe default\n"}) {
    EXPECT_THAT(facts, HasSubstr(fact));
  }
  EXPECT_THAT(facts, Not(HasSubstr("foreign fd")));
}

TEST(ChildProcessTest, DangerousVariablesDoNotReachTheChild) {
  setenv("CUDA_INJECTION64_PATH", VITUNE_FAKE_CHILD ".so", 1);
  setenv("NVRTC_SECRET", "1", 1);
  setenv("LD_PRELOAD", "", 1);
  setenv("CUDA_VISIBLE_DEVICES", "5", 1);
  ChildProcess child(fake({"environment"}));
  for (const char* name :
       {"CUDA_INJECTION64_PATH", "NVRTC_SECRET", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"}) {
    unsetenv(name);
  }
  const std::string environment = next_payload(child);
  EXPECT_THAT(environment, HasSubstr("CUDA_VISIBLE_DEVICES=5\n"));
  EXPECT_THAT(environment, Not(HasSubstr("LD_PRELOAD")));
  EXPECT_THAT(environment, Not(HasSubstr("CUDA_INJECTION64_PATH")));
  EXPECT_THAT(environment, Not(HasSubstr("NVRTC_")));
}

TEST(ChildProcessTest, ItsOwnEndIsReported) {
  struct Case {
    std::vector<std::string> arguments;
    bool exited;
    int code;
    const char* text;
  };
  const Case kCases[] = {
      {{"exit", "0"}, true, 0, "exit status 0"},
      {{"exit", "1"}, true, 1, "exit status 1"},
      {{"exit", "255"}, true, 255, "exit status 255"},
      {{"die", "11"}, false, SIGSEGV, "signal 11 (Segmentation fault)"},
      {{"die", "6"}, false, SIGABRT, "signal 6 (Aborted)"},
      {{"close", "7"}, true, 7, "exit status 7"},
  };
  for (const Case& c : kCases) {
    ChildProcess child(fake(c.arguments));
    Frame frame;
    EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kClosed) << c.text;
    const auto end = child.kill();
    ASSERT_TRUE(end) << c.text;
    EXPECT_EQ(end->exited, c.exited) << c.text;
    EXPECT_EQ(end->code, c.code) << c.text;
    EXPECT_EQ(end->text(), c.text);
    EXPECT_FALSE(child.send({1, 1, "too late"}, 1s));
    EXPECT_EQ(child.kill()->text(), c.text) << "asking again changes nothing";
  }
}

TEST(ChildProcessTest, AChildThatIgnoresSignalsOrStopsIsKilled) {
  for (const char* mode : {"ignore", "stop"}) {
    ChildProcess child(fake({mode}));
    next_payload(child);
    Frame frame;
    EXPECT_EQ(child.receive(frame, 50ms), Receive::kTimeout) << mode;
    const auto end = child.kill();
    ASSERT_TRUE(end) << mode;
    EXPECT_FALSE(end->exited);
    EXPECT_EQ(end->code, SIGKILL);
    EXPECT_TRUE(gone(child.pid()));
  }
}

TEST(ChildProcessTest, AStreamThatIsNotOursIsGarbage) {
  for (const char* mode : {"garbage", "huge"}) {
    ChildProcess child(fake({mode}));
    Frame frame;
    EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kGarbage) << mode;
    EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kGarbage) << mode << ": for good";
  }
}

TEST(ChildProcessTest, UnfinishedFramesDoNotExtendTheDeadline) {
  for (const char* mode : {"half", "dribble"}) {
    ChildProcess child(fake({mode}));
    Frame frame;
    EXPECT_TRUE(test::is_prompt(3s, [&] {
      const auto start = steady_clock::now();
      EXPECT_EQ(child.receive(frame, test::kBrief), Receive::kTimeout) << mode;
      EXPECT_GE(steady_clock::now() - start, test::kBrief);
    }));
  }
}

TEST(ChildProcessTest, AZeroTimeoutStillTakesWhatIsThere) {
  ChildProcess child(fake({"heartbeats"}));
  Frame frame;
  ASSERT_EQ(child.receive(frame, test::kPatience), Receive::kFrame);
  const auto end = steady_clock::now() + test::kPatience;
  for (std::uint64_t id = 1; id < 100; ++id) {
    Receive received = Receive::kTimeout;  // until the child has written it
    while (received == Receive::kTimeout && steady_clock::now() < end) {
      received = child.receive(frame, 0ms);
    }
    ASSERT_EQ(received, Receive::kFrame);
    EXPECT_EQ(frame.id, id);
  }
}

TEST(ChildProcessTest, AHundredMegabytesOfStderrNeitherBlockNorGrowUs) {
  ChildProcess child(fake({"flood"}));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_EQ(next_payload(child), "flooded");
  getrusage(RUSAGE_SELF, &after);
  Frame frame;
  EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kClosed);
  const std::string output = child.output();
  EXPECT_LE(output.size(), 4096u);
  EXPECT_THAT(output, testing::EndsWith("eeethe end"));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 8 << 10);  // KiB
}

TEST(ChildProcessTest, BothSidesMayTalkAtOnce) {
  ChildProcess child(fake({"talk"}));
  ASSERT_TRUE(child.send({1, 1, std::string(8 << 20, 's')}, test::kPatience));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next_payload(child).size(), std::size_t{4} << 20);
  EXPECT_EQ(next_payload(child), std::to_string(8 << 20));
}

TEST(ChildProcessTest, SendingToAChildThatDoesNotReadEndsAtTheDeadline) {
  std::unique_ptr<ChildProcess> child;
  EXPECT_TRUE(test::is_prompt(3s, [&] {
    child = std::make_unique<ChildProcess>(fake({"silent"}));
    EXPECT_FALSE(child->send({1, 1, std::string(8 << 20, 's')}, test::kBrief));
  }));
  EXPECT_TRUE(test::is_prompt(3s, [&] {
    EXPECT_FALSE(child->send({1, 2, "after a cut frame"}, 10s));
  })) << "the stream is known to be cut, so nobody waits";
}

TEST(ChildProcessTest, AGrandchildThatHoldsThePipesIsKilledToo) {
  EXPECT_TRUE(test::is_prompt(3s, [] {
    ChildProcess child(fake({"grandchild"}));
    const int grandchild = std::stoi(next_payload(child));
    EXPECT_TRUE(child.kill());
    EXPECT_TRUE(test::soon([&] { return gone(grandchild); }));
  }));
}

TEST(ChildProcessTest, MemoryAndProcessorLimitsHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need terabytes of addresses, so the memory limit is off";
#else
  ChildOptions memory = fake({"memory"});
  memory.memory_limit_bytes = 512 << 20;
  ChildProcess bomb(memory);
  EXPECT_LE(std::stoi(next_payload(bomb)), 512);

  ChildOptions cpu = fake({"cpu"});
  cpu.cpu_limit_seconds = 1;
  ChildProcess burner(cpu);
  Frame frame;
  EXPECT_EQ(burner.receive(frame, test::kPatience), Receive::kClosed);
  const auto end = burner.kill();
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->exited);
#endif
}

TEST(ChildProcessTest, AChildDiesWithItsParent) {
  ChildProcess parent(fake({"orphan"}));
  const int orphan = std::stoi(next_payload(parent));
  EXPECT_TRUE(test::soon([&] { return gone(orphan); }));
}

TEST(ChildProcessTest, WhatCannotBeStartedIsNamed) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{}, "(no command)"},
      {{""}, "not absolute"},
      {{"true"}, "not absolute"},
      {{VITUNE_FAKE_CHILD ".absent"},
       VITUNE_FAKE_CHILD ".absent: failed to load the program: No such file"},
      {{"/dev/null"}, "Permission denied"},
  };
  const std::size_t before = open_descriptors();
  for (const auto& [command, reason] : kCases) {
    ChildOptions options;
    options.command = command;
    try {
      ChildProcess child(options);
      ADD_FAILURE() << "started " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailure);
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(ChildProcessTest, AnIgnoredSigchldLosesTheStatusAndNothingElse) {
  signal(SIGCHLD, SIG_IGN);
  ChildProcess child(fake({"exit", "3"}));
  Frame frame;
  EXPECT_EQ(child.receive(frame, test::kPatience), Receive::kClosed);
  const auto end = child.kill();
  signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->text(), "an unknown status");
}

TEST(ChildProcessTest, ManyRoundsLeaveNoZombieAndNoDescriptor) {
  constexpr int kRounds = 200;
  const std::vector<std::vector<std::string>> kModes = {
      {"echo"}, {"exit", "1"}, {"die", "11"}, {"garbage"}, {"ignore"},
      {"stop"}, {"half"},      {"huge"},      {"close"},   {"grandchild"}};
  const std::size_t before = open_descriptors();
  for (int round = 0; round < kRounds; ++round) {
    ChildProcess child(fake(kModes[static_cast<std::size_t>(round) % kModes.size()]));
    Frame frame;
    child.send({1, 1, "job"}, 1s);
    child.receive(frame, std::chrono::milliseconds(round % 5));
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace vitune
