// tests/generator/attention_backward_short_test.cpp -- The family sm80_short of attention's
// gradients: what it refuses, its space, its plans, and kernels without spills. Needs no GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/format.h"
#include "generator/attention_backward/operator.h"
#include "generator/attention_backward/short.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune::attention_backward_short_test {
namespace {

ProblemPtr parsed(const std::string& text) {
  return AttentionBackwardProblem::parse("attention_backward " + text);
}

// Configs of the family in a problem's space.
std::vector<Config> configs_of(const Problem& problem) {
  std::vector<Config> own;
  const DeviceInfo device = testing_support::h200_device();
  for (Config& config : problem.op().space(problem, device).enumerate()) {
    if (problem.op().family_of(config).name() == "sm80_short") own.push_back(std::move(config));
  }
  return own;
}

Config default_of(const Problem& problem) {
  const DeviceInfo device = testing_support::h200_device();
  return default_config(problem, device);
}

LaunchPlan plan_of(const Problem& problem, std::int64_t buffers, int resident) {
  Config config = default_of(problem);
  config.set("kBuffers", buffers);
  const std::array<int, 2> both = {resident, 8};
  return problem.op().plan(problem, config, testing_support::h200_device(), both);
}

TEST(AttentionBackwardShortTest, RefusesInASentence) {
  const struct {
    const char *problem, *sentence;
  } cases[] = {
      {"bf16 b=1 h=2 n=129 d=32", "at most 128 rows, not 129"},
      {"bf16 b=1 h=2 nq=16 nk=197 d=32", "at most 128 rows, not 197"},
      {"bf16 b=1 h=4 hkv=2 n=49 d=32", "no keys that query heads share"},
  };
  for (const auto& c : cases) {
    const auto reason =
        attention_backward_short().refusal(*parsed(c.problem), testing_support::h200_device());
    ASSERT_TRUE(reason) << c.problem;
    EXPECT_NE(reason->find(c.sentence), std::string::npos) << *reason;
    EXPECT_TRUE(configs_of(*parsed(c.problem)).empty()) << c.problem;
  }
}

TEST(AttentionBackwardShortTest, HasSomeDozenConfigsThatFitTheDevice) {
  for (const char* const words :
       {"", " causal", " bias=bf16:1x12x50x50 dbias", " bias=fp32:1x12x50x50 mask=bool:50x50"}) {
    for (const int d : {16, 32, 64, 72, 80, 128}) {
      const ProblemPtr problem = parsed(formatted("bf16 b=64 h=12 n=50 d={}{}", d, words));
      const std::vector<Config> configs = configs_of(*problem);
      EXPECT_GE(configs.size(), 3u) << problem->text();
      EXPECT_LE(configs.size(), 60u) << problem->text();
      for (const Config& config : configs) {
        for (const KernelNeeds& needs : problem->op().kernels(*problem, config)) {
          EXPECT_LE(needs.shared_bytes, 232448) << config.text();
        }
      }
    }
  }
}

TEST(AttentionBackwardShortTest, IsThatOfWhichTheDefaultIsUpToWhatItTakes) {
  const auto family_of = [](const char* text) {
    const ProblemPtr problem = parsed(text);
    return std::string(problem->op().family_of(default_of(*problem)).name());
  };
  EXPECT_EQ(family_of("bf16 b=256 h=12 n=50 d=64 layout=packed"), "sm80_short");
  EXPECT_EQ(family_of("bf16 b=256 h=8 n=77 d=64 causal"), "sm80_short");
  EXPECT_EQ(family_of("bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias"), "sm80_short");
  EXPECT_NE(family_of("bf16 b=32 h=12 n=197 d=64 layout=packed"), "sm80_short");
}

TEST(AttentionBackwardShortTest, LaunchesACtaForEachHeadOrAsManyAsThereIsRoomFor) {
  const ProblemPtr problem = parsed("bf16 b=256 h=12 n=50 d=64");
  EXPECT_EQ(plan_of(*problem, 1, 4).kernels.at(0).shape.grid[0], 256u * 12);
  const LaunchPlan staying = plan_of(*problem, 2, 2);
  ASSERT_EQ(staying.kernels.size(), 1u);
  EXPECT_EQ(staying.kernels[0].shape.grid[0], 2u * 132);
  EXPECT_EQ(staying.scratch_bytes, 0);
}

TEST(AttentionBackwardShortTest, SharesAnEntryOfTheBiasOutAmongCtasThatAreThereAtOnce) {
  const LaunchPlan plan =
      plan_of(*parsed("bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias"), 1, 3);
  ASSERT_EQ(plan.kernels.size(), 2u);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 3u * 132);
  EXPECT_EQ(plan.scratch_bytes, 4 * 132 * 3 * 49 * 49);
  // With masks of windows a CTA has the batch entries of one of them.
  const LaunchPlan masked = plan_of(
      *parsed("bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 mask=bool:64x1x49x49 dbias"), 1, 3);
  EXPECT_EQ(masked.kernels.at(0).shape.grid[0], 3u * 128);
  // Nothing is shared: each CTA writes what it has.
  const LaunchPlan own = plan_of(*parsed("bf16 b=8 h=3 n=49 d=32 bias=bf16:8x3x49x49 dbias"), 1, 3);
  ASSERT_EQ(own.kernels.size(), 1u);
  EXPECT_EQ(own.kernels[0].shape.grid[0], 8u * 3);
  EXPECT_EQ(own.scratch_bytes, 0);
}

class AttentionBackwardShortCompileTest : public test::RealCompilerTest,
                                          public testing::WithParamInterface<const char*> {};

TEST_P(AttentionBackwardShortCompileTest, DefaultsAreNotSpilledButForAFewWords) {
  const ProblemPtr problem = parsed(GetParam());
  const Config config = default_of(*problem);
  ASSERT_EQ(problem->op().family_of(config).name(), "sm80_short");
  for (const char* const arch : {"sm_80", "sm_90", "sm_120"}) {
    const CompileResult result = compiler_->compile(problem->op().request(*problem, config, arch));
    EXPECT_EQ(result.status, CompileStatus::kOk) << config.text() << '\n' << result.log;
    EXPECT_LE(result.facts.spill_bytes, attention_backward_short().harmless_spill_bytes())
        << arch << ' ' << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, AttentionBackwardShortCompileTest,
    testing::Values("bf16 b=256 h=12 n=50 d=64 layout=packed", "bf16 b=2048 h=4 n=49 d=32",
                    "bf16 b=256 h=8 n=77 d=64 causal", "bf16 b=1024 h=6 n=64 d=32",
                    "bf16 b=256 h=12 n=64 d=64",
                    "bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias",
                    "fp16 b=128 h=12 n=49 d=32 bias=fp32:1x12x49x49 mask=bool:64x1x49x49 dbias"));

}  // namespace
}  // namespace vitune::attention_backward_short_test
