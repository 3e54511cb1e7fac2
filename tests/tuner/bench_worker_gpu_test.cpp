// tests/tuner/bench_worker_gpu_test.cpp -- The bench worker on a real GPU, with kernels that have
// bugs.
//
// Skipped visibly where there is no device or no NVRTC. The seeded bugs go through the real worker
// process, so that what is tested is what tuning does.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/child_process.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/patience.h"
#include "tests/tuner/gpu_fixture.h"
#include "tuner/measure/statistics.h"
#include "tuner/worker/bench_client.h"

namespace vitune::bench_worker_gpu_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Far more than any takes, on the emulated device too.
constexpr milliseconds kDeadline = 5 * test::kPatience;

class GpuBenchWorker : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    BenchClientOptions options;
    options.command = {VITUNE_COMMAND, "--worker=bench"};
    client_ = std::make_unique<BenchClient>(options, LogSink{});
    client_->set_support(support_);
    ASSERT_TRUE(await_idle()) << client_->problem();
  }

  bool await_idle() {
    const auto end = steady_clock::now() + kDeadline;
    while (steady_clock::now() < end && !client_->idle() && !client_->lost()) {
      client_->step();
      std::this_thread::sleep_for(milliseconds(1));
    }
    return client_->idle();
  }
  BenchResult await_result() {
    const auto end = steady_clock::now() + 2 * kDeadline;
    while (steady_clock::now() < end && !client_->lost()) {
      if (auto result = client_->step()) return *result;
      std::this_thread::sleep_for(milliseconds(1));
    }
    ADD_FAILURE() << "no result: " << client_->problem();
    return {};
  }

  std::vector<std::byte> compile(const std::string& text) {
    CompileRequest request;
    request.source = assemble(text);
    request.arch = device_.arch();
    request.entry = "vitune_attention_forward";
    const CompileResult result = compiler_->compile(request);
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    return result.cubin;
  }
  // A module without the kernel that its config is said to be.
  KernelRef nameless(const AttentionProblem& p) {
    CompileRequest request;
    request.source = assemble("extern \"C\" __global__ void other() {}\n");
    request.arch = device_.arch();
    request.entry = "other";
    return {default_attention_config(p, device_), sha256("nameless"),
            compiler_->compile(request).cubin};
  }
  KernelRef bug(int number, const AttentionProblem& p) {
    std::ifstream file(std::string(VITUNE_SOURCE_DIR) + "/tests/tuner/seeded_bugs/attention.cuh");
    std::ostringstream text;
    text << "#define VITUNE_BUG " << number << "\n#define VITUNE_CAUSAL " << p.causal
         << "\n#define VITUNE_HEAD " << p.d << "\n"
         << file.rdbuf();
    const Config config = default_attention_config(p, device_);
    return {config, sha256(text.str()), compile(text.str())};
  }
  TrialReply run(const AttentionProblem& p, KernelRef kernel, milliseconds deadline = kDeadline) {
    TrialJob job;
    job.problem = p.text();
    job.kernel = std::move(kernel);
    job.judge = judge_of(*compiler_, device_.arch(), attention());
    EXPECT_TRUE(await_idle());
    client_->submit(std::move(job), deadline);
    const BenchResult result = await_result();
    return result.trial.value_or(TrialReply{});
  }

  std::unique_ptr<BenchClient> client_;
};

constexpr char kPlain[] = "bf16 b=2 h=4 n=100 d=64 lse";
constexpr char kCausal[] = "bf16 b=2 h=4 n=100 d=64 causal lse";
constexpr char kMasked[] = "bf16 b=2 h=4 n=100 d=64 lse mask=bool:2x1x100x100";
constexpr char kGrouped[] = "bf16 b=2 h=4 hkv=2 n=100 d=64 layout=bnhd";
constexpr char kWindows[] = "bf16 b=4 h=2 n=49 d=64 bias=bf16:2x1x49x49";
constexpr char kStrided[] = "bf16 b=2 h=4 n=100 d=64 o=@51200,128,512";

TEST_F(GpuBenchWorker, ARightKernelPassesOnEveryFeatureAndIsTimed) {
  for (const char* words : {kPlain, kCausal, kMasked, kGrouped, kWindows, kStrided}) {
    const AttentionProblem p = problem(words);
    const TrialReply reply = run(p, bug(0, p));
    EXPECT_EQ(reply.status, TrialStatus::kOk) << words << ": " << reply.reason;
    EXPECT_GT(reply.measurement.cold.median_us, 1) << words;
    EXPECT_GT(reply.measurement.warm.median_us, 0.5) << words;
    EXPECT_GT(reply.error.max_error, 0) << words;
  }
}

struct BugCase {
  int number;
  const char* words;
  TrialStatus status;
  const char* reason;  // part of it
};

TEST_F(GpuBenchWorker, EverySeededBugIsFoundAndARightKernelPassesAfterwards) {
  const std::vector<BugCase> cases = {
      {1, kPlain, TrialStatus::kWrong, "erred"},
      {2, kCausal, TrialStatus::kWrong, "erred"},
      {3, kPlain, TrialStatus::kWrong, "unwritten"},
      {4, kPlain, TrialStatus::kWrong, "beside its output"},
      {5, kPlain, TrialStatus::kWrong, "inputs"},
      {6, kMasked, TrialStatus::kWrong, "NaN"},
      {7, kPlain, TrialStatus::kWrong, "again"},
      {8, kPlain, TrialStatus::kWrong, "erred"},
      {9, kGrouped, TrialStatus::kWrong, "erred"},
      {10, kWindows, TrialStatus::kWrong, "erred"},
      {11, kPlain, TrialStatus::kCrash, device_.name == "emulated device" ? "signal" : "(7"},
      {13, kPlain, TrialStatus::kWrong, ""},
      {14, kPlain, TrialStatus::kWrong, "erred"},
      {15, kPlain, TrialStatus::kWrong, "of lse"},
      {16, kPlain, TrialStatus::kWrong, "of lse"},
      {17, kStrided, TrialStatus::kWrong, "beside its output"},
      {18, kWindows, TrialStatus::kWrong, "masked inputs"},
      {19, kWindows, TrialStatus::kWrong, "masked inputs"},
  };
  for (const BugCase& c : cases) {
    const AttentionProblem p = problem(c.words);
    const TrialReply reply = run(p, bug(c.number, p));
    EXPECT_EQ(reply.status, c.status) << "bug " << c.number << ": " << reply.reason;
    EXPECT_NE(reply.reason.find(c.reason), std::string::npos)
        << "bug " << c.number << ": " << reply.reason;
    const TrialReply after = run(p, bug(0, p));
    EXPECT_EQ(after.status, TrialStatus::kOk) << "after bug " << c.number << ": " << after.reason;
  }
}

TEST_F(GpuBenchWorker, AHangingKernelIsKilledAndTheNextOneRuns) {
  const AttentionProblem p = problem(kPlain);
  EXPECT_EQ(run(p, bug(12, p), milliseconds(3000)).status, TrialStatus::kTimeout);
  const TrialReply after = run(p, bug(0, p));
  EXPECT_EQ(after.status, TrialStatus::kOk) << after.reason;
}

TEST_F(GpuBenchWorker, WhatTheDriverRefusesIsAnInvalidLaunchAndHarmsNothing) {
  const AttentionProblem p = problem(kPlain);
  const KernelRef good = bug(0, p);
  KernelRef cut = good, unsent = good;
  cut.cubin.resize(cut.cubin.size() / 2);
  cut.kernel_key = sha256("cut");
  unsent.cubin.clear();
  unsent.kernel_key = sha256("unsent");
  const int worker = client_->pid();
  for (const KernelRef& kernel : {cut, nameless(p), unsent}) {
    const TrialReply reply = run(p, kernel);
    EXPECT_EQ(reply.status, TrialStatus::kInvalidLaunch) << reply.reason;
    EXPECT_FALSE(reply.reason.empty());
  }
  EXPECT_EQ(run(p, good).status, TrialStatus::kOk);
  EXPECT_EQ(client_->pid(), worker);
}

TEST_F(GpuBenchWorker, AProblemThatDoesNotFitIsOutOfMemoryAndNotTheCandidatesFault) {
  const AttentionProblem small = problem(kPlain);
  const AttentionProblem huge = problem("bf16 b=65536 h=128 n=1024 d=64 layout=bnhd");
  const TrialReply reply = run(huge, bug(0, huge));
  EXPECT_EQ(reply.status, TrialStatus::kOutOfMemory) << reply.reason;
  EXPECT_EQ(run(small, bug(0, small)).status, TrialStatus::kOk);
}

TEST_F(GpuBenchWorker, ARaceTimesEveryContestantInEveryRound) {
  const AttentionProblem p = problem(kPlain);
  RaceJob job;
  job.problem = p.text();
  job.contestants = {bug(0, p), bug(0, p)};
  job.contestants[1].kernel_key = sha256("the same kernel by another name");
  job.rounds = 20;
  client_->submit(job, kDeadline);
  const BenchResult result = await_result();
  ASSERT_TRUE(result.race.has_value());
  ASSERT_EQ(result.race->status, TrialStatus::kOk) << result.race->reason;
  ASSERT_EQ(result.race->cold_us.size(), 2u);
  EXPECT_EQ(result.race->cold_us[0].size(), 20u);
  EXPECT_NEAR(median(result.race->warm_us[0]) / median(result.race->warm_us[1]), 1, 0.1);
  EXPECT_NEAR(median(result.race->cold_us[0]) / median(result.race->cold_us[1]), 1, 0.1);
}

TEST_F(GpuBenchWorker, ARaceAtAnotherPlaceHasTensorsOfItsOwn) {
  const AttentionProblem p = problem(kPlain);
  RaceJob job;
  job.problem = p.text();
  job.contestants = {bug(0, p)};
  job.rounds = 2;
  for (const int place : {2, 0, 1}) {
    job.place = place;
    client_->submit(job, kDeadline);
    const BenchResult result = await_result();
    ASSERT_TRUE(result.race.has_value());
    ASSERT_EQ(result.race->status, TrialStatus::kOk) << result.race->reason;
    EXPECT_EQ(result.race->cold_us[0].size(), 2u);
  }
  // The worker goes on with another problem, without what lay there.
  EXPECT_EQ(
      run(problem("bf16 b=1 h=2 n=65 d=64"), bug(0, problem("bf16 b=1 h=2 n=65 d=64"))).status,
      TrialStatus::kOk);
}

TEST_F(GpuBenchWorker, TheDefaultKernelOfEachFeatureIsRight) {
  const bool emulated = device_.name == "emulated device";  // which would need a minute for eight
  const char* const vit = emulated ? "bf16 b=1 h=12 n=197 d=64" : "bf16 b=8 h=12 n=197 d=64";
  for (const char* words :
       {kPlain, kCausal, kMasked, kGrouped, kWindows, kStrided, vit,
        "fp16 b=2 h=4 nq=33 nk=257 d=80 layout=bhnd", "bf16 b=2 h=4 n=145 d=72 layout=bnhd",
        "bf16 b=64 h=3 n=49 d=32 bias=fp32:1x3x49x49"}) {
    const AttentionProblem p = problem(words);
    const Config config = default_attention_config(p, device_);
    const CompileRequest request = attention_compile_request(p, config, device_.arch());
    const CompileResult compiled = compiler_->compile(request);
    ASSERT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
    const KernelRef kernel = {config, kernel_key(request, compiler_->version()), compiled.cubin};
    const TrialReply reply = run(p, kernel);
    EXPECT_EQ(reply.status, TrialStatus::kOk) << words << ": " << reply.reason;
  }
}

TEST_F(GpuBenchWorker, SaysWhenItMakesRightAnswersAndMakesThemOnce) {
  const AttentionProblem p = problem(kPlain);
  ChildOptions options;
  options.command = {VITUNE_COMMAND, "--worker=bench", "0"};
  ChildProcess child(options);
  // The phases of a job until its result; beats repeat them, those before it name what was before.
  const auto phases_of = [&](MessageType type, std::uint64_t id, const std::string& payload) {
    std::vector<std::string> phases;
    EXPECT_TRUE(child.send({static_cast<std::uint32_t>(type), id, payload}, kDeadline));
    Frame frame;
    while (child.receive(frame, kDeadline) == ChildProcess::Receive::kFrame) {
      if (frame.type == static_cast<std::uint32_t>(MessageType::kPhase)) {
        const bool repeated = !phases.empty() && phases.back() == frame.payload;
        if (frame.id == id && !repeated) phases.push_back(frame.payload);
      } else if (frame.type == static_cast<std::uint32_t>(MessageType::kResult)) {
        EXPECT_EQ(decode_trial_reply(frame.payload).status, TrialStatus::kOk);
        return phases;
      }
    }
    ADD_FAILURE() << "no result: " << child.output();
    return phases;
  };
  phases_of(MessageType::kSetup, 1, encode(SetupJob{support_}));
  TrialJob job;
  job.problem = p.text();
  job.kernel = bug(0, p);
  job.judge = judge_of(*compiler_, device_.arch(), attention());
  job.measure = false;
  const auto first = phases_of(MessageType::kTrial, 2, encode(job));
  ASSERT_GE(first.size(), 4u);
  for (std::size_t i = 2; i < first.size(); ++i) {
    EXPECT_EQ(first[i], i % 2 == 0 ? kReferencePhase : "verify");
  }
  EXPECT_EQ(first.back(), "verify");
  EXPECT_EQ(phases_of(MessageType::kTrial, 3, encode(job)),
            (std::vector<std::string>{"load", "verify"}));
}

TEST_F(GpuBenchWorker, AVerificationWithoutItsJudgeIsAnErrorAndOneWithItGoesOn) {
  const AttentionProblem p = problem(kPlain);
  TrialJob job;
  job.problem = p.text();
  job.kernel = bug(0, p);
  job.measure = false;
  for (const bool has_judge : {false, true}) {
    if (has_judge) job.judge = judge_of(*compiler_, device_.arch(), attention());
    ASSERT_TRUE(await_idle());
    client_->submit(job, kDeadline);
    const TrialReply reply = await_result().trial.value_or(TrialReply{});
    EXPECT_EQ(reply.status, has_judge ? TrialStatus::kOk : TrialStatus::kInvalidLaunch);
    EXPECT_EQ(reply.reason.find("before the judge of 'attention'") != std::string::npos, !has_judge)
        << reply.reason;
  }
}

// ---- without a GPU ----

TEST(BenchWorker, WithoutADeviceItSaysSoAndEndsWithTheStatusForIt) {
  try {
    CudaDriver::open();
    GTEST_SKIP() << "this machine has a GPU";
  } catch (const Error&) {
  }
  ChildOptions options;
  options.command = {VITUNE_COMMAND, "--worker=bench", "0"};
  ChildProcess child(options);
  Frame frame;
  EXPECT_EQ(child.receive(frame, test::kPatience), ChildProcess::Receive::kClosed);
  const auto end = child.kill();
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->exited) << end->text();
  EXPECT_EQ(end->code, exit_status(ErrorCode::kNoDevice));
  EXPECT_NE(child.output().find("no usable GPU"), std::string::npos) << child.output();
}

}  // namespace
}  // namespace vitune::bench_worker_gpu_test
