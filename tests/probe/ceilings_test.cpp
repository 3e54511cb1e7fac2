// tests/probe/ceilings_test.cpp -- Ceilings without a GPU: the words between parent and worker, a
// worker that misbehaves, and the probes compiled for every architecture.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ceilings.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/env.h"
#include "core/error.h"
#include "generator/compiler.h"
#include "probe/ceiling_checks.h"
#include "probe/ceiling_probes.h"
#include "tests/generator/compile_support.h"
#include "tests/patience.h"

namespace vitune {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Ceilings some_ceilings() {
  Ceilings ceilings;
  ceilings.figures = {{"hbm_copy_tb_s", 4.1, 4.0, 4.2, 0}, {"fma_tflops", 61, 60, 62, 1980}};
  ceilings.clock_mhz = 1980;
  ceilings.compiler = "nvrtc 13.0 0123456789ab";
  ceilings.contended = true;
  return ceilings;
}

TEST(CeilingWords, AnAnswerReadsBackAsItWasWritten) {
  const Ceilings read = decode_ceilings(encode(some_ceilings()));

  ASSERT_EQ(read.figures.size(), 2u);
  EXPECT_EQ(read.figures[1].name, "fma_tflops");
  EXPECT_EQ(read.figures[1].median, 61);
  EXPECT_EQ(read.figures[1].low, 60);
  EXPECT_EQ(read.figures[1].high, 62);
  EXPECT_EQ(read.figures[1].clock_mhz, 1980);
  EXPECT_EQ(read.clock_mhz, 1980);
  EXPECT_EQ(read.compiler, "nvrtc 13.0 0123456789ab");
  EXPECT_TRUE(read.contended);
  EXPECT_EQ(read.find("wgmma_tflops"), nullptr);
}

TEST(CeilingWords, AnImplausibleAnswerIsRefused) {
  const auto with = [](const char* figure, const char* field, const json& value) {
    json document = json::parse(encode(some_ceilings()));
    document["figures"][figure][field] = value;
    return document.dump();
  };
  const std::string cases[] = {
      "",
      "[]",
      "{\"clock_mhz\": 1}",
      with("fma_tflops", "median", -1),
      with("fma_tflops", "median", 0),
      with("fma_tflops", "median", 1e10),
      with("fma_tflops", "median", "fast"),
      with("fma_tflops", "median", 70),
      with("fma_tflops", "low", 61.5),
      with("fma_tflops", "clock_mhz", -2),
      with("warp_drive", "median", 1),
  };
  for (const std::string& text : cases) EXPECT_THROW(decode_ceilings(text), Error) << text;
}

TEST(CeilingWords, ARequestOutsideItsLimitsIsRefused) {
  const CeilingEffort effort = decode_effort(encode(CeilingEffort{.launch_us = 5, .samples = 7}));
  EXPECT_EQ(effort.launch_us, 5);
  EXPECT_EQ(effort.samples, 7);
  for (const CeilingEffort& wrong :
       {CeilingEffort{0, 7}, CeilingEffort{1e9, 7}, CeilingEffort{5, 0}, CeilingEffort{5, 1001}}) {
    EXPECT_THROW(decode_effort(encode(wrong)), Error);
  }
  EXPECT_THROW(decode_effort("{}"), Error);
}

// How a worker that does `script` makes measure_ceilings() fail.
std::string failure_of(const std::string& script, ErrorCode code,
                       std::chrono::milliseconds deadline, bool stopped = false) {
  CeilingOptions options;
  options.command = {"/bin/sh", "-c", script};
  options.phase_deadline = deadline;
  const std::atomic<bool> stop{stopped};
  try {
    measure_ceilings(
        options, [](const std::string&) {}, stop);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "it did not fail";
}

TEST(CeilingWorker, ThatHangsEndsByTheDeadline) {
  EXPECT_TRUE(test::is_prompt(std::chrono::seconds(10), [] {
    EXPECT_THAT(failure_of("sleep 600", ErrorCode::kFailure, test::kBrief), HasSubstr("no answer"));
  }));
}

TEST(CeilingWorker, ThatDiesIsReportedWithItsLastWords) {
  const std::string said =
      failure_of("echo out of luck >&2; exit 9", ErrorCode::kFailure, test::kPatience);
  EXPECT_THAT(said, HasSubstr("exit status 9"));
  EXPECT_THAT(said, HasSubstr("out of luck"));
}

TEST(CeilingWorker, ThatSendsGarbageIsReported) {
  EXPECT_THAT(
      failure_of("head -c 4096 /dev/zero >&3; sleep 600", ErrorCode::kFailure, test::kPatience),
      HasSubstr("ended while at 'start'"));
}

TEST(CeilingWorker, IsGivenUpWhenTheUserInterrupts) {
  failure_of("sleep 600", ErrorCode::kInterrupted, test::kPatience, true);
}

// Closed forms and one product by hand, against the probes' own numbers.
TEST(CeilingChecks, FollowTheProbesArithmetic) {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < 12345; ++i) sum += i * 0x9e3779b9u;
  EXPECT_EQ(expected_read_sum(12345, 1), sum);
  EXPECT_EQ(expected_read_sum(12345, 3), 3 * sum);
  EXPECT_EQ(expected_read_sum(std::uint64_t{1} << 32, 1),
            static_cast<std::uint32_t>((std::uint64_t{1} << 31) * 0xffffffffull * 0x9e3779b9ull));

  const auto once = expected_mma(1), thrice = expected_mma(3);
  ASSERT_EQ(once.size(), 256u);
  EXPECT_NE(once[0].value, once[1].value);
  EXPECT_EQ(once[3].value, once[35].value);  // every warp does the same
  EXPECT_DOUBLE_EQ(thrice[5].value, 3 * once[5].value);
  const auto group = expected_wgmma(1);
  ASSERT_EQ(group.size(), 256u);
  EXPECT_NE(group[0].value, group[32].value);   // another warp has other rows
  EXPECT_NE(group[0].value, group[128].value);  // and so has another warpgroup
  EXPECT_NE(expected_fma(1)[0].value, expected_fma(2)[0].value);
}

class ProbesCompile : public test::RealCompilerTest {
 protected:
  void compile(const CompileRequest& request) {
    const CompileResult result = compiler_->compile(request);
    if (result.log.find("gpu-architecture") != std::string::npos) return;  // unknown to this NVRTC
    ASSERT_EQ(result.status, CompileStatus::kOk) << request.arch << ": " << result.log;
    EXPECT_TRUE(cubin_is_well_formed(result.cubin)) << request.arch;
    // A probe that waits for its own registers measures memory instead.
    EXPECT_THAT(result.log, testing::Not(testing::ContainsRegex("[1-9][0-9]* bytes spill")))
        << request.arch;
    EXPECT_THAT(result.log, testing::Not(HasSubstr("serialized"))) << request.arch;
  }
};

TEST_F(ProbesCompile, ForEverySupportedArchitectureWithoutSpills) {
  for (const std::string& arch : supported_architectures()) compile(probe_compile_request(arch));
}

TEST_F(ProbesCompile, WithWgmmaForHopperOnly) {
  ASSERT_TRUE(wgmma_probe_compile_request("sm_90"));
  EXPECT_EQ(wgmma_probe_compile_request("sm_90")->arch, "sm_90a");
  compile(*wgmma_probe_compile_request("sm_90"));
  for (const std::string& arch : supported_architectures()) {
    EXPECT_EQ(wgmma_probe_compile_request(arch).has_value(), arch == "sm_90") << arch;
  }
}

}  // namespace
}  // namespace vitune
