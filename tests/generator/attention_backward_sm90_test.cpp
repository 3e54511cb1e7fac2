// tests/generator/attention_backward_sm90_test.cpp -- The family sm90 of attention's gradients:
// what it refuses, its space, its plan, and kernels that ptxas takes as they are. Needs no GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/format.h"
#include "generator/attention_backward/operator.h"
#include "generator/attention_backward/sm90.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune::attention_backward_sm90_test {
namespace {

ProblemPtr parsed(const std::string& text) {
  return AttentionBackwardProblem::parse("attention_backward " + text);
}

// Configs of the family in a problem's space.
std::vector<Config> configs_of(const Problem& problem) {
  std::vector<Config> own;
  const DeviceInfo device = testing_support::h200_device();
  for (Config& config : problem.op().space(problem, device).enumerate()) {
    if (problem.op().family_of(config).name() == "sm90") own.push_back(std::move(config));
  }
  return own;
}

// The family's own; the problem's may be of another one.
Config default_of(const Problem& problem) {
  const DeviceInfo device = testing_support::h200_device();
  const ParameterSpace space = problem.op().space(problem, device);
  const std::vector<Config> own = attention_backward_sm90().defaults(problem, device, space);
  return own.empty() ? Config() : own.front();
}

TEST(AttentionBackwardSm90Test, RefusesInASentence) {
  const struct {
    const char *problem, *sentence;
  } cases[] = {
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49", "no bias and no mask"},
      {"bf16 b=1 h=2 n=49 d=32 mask=bool:1x1x49x49", "no bias and no mask"},
      {"bf16 b=1 h=2 n=49 d=32 align=8", "16-byte alignment, not 8"},
      {"bf16 b=1 h=2 n=49 d=32 do=@3136,32,0", "strides that are not 0"},
  };
  for (const auto& c : cases) {
    const auto reason =
        attention_backward_sm90().refusal(*parsed(c.problem), testing_support::h200_device());
    ASSERT_TRUE(reason) << c.problem;
    EXPECT_NE(reason->find(c.sentence), std::string::npos) << *reason;
  }
  DeviceInfo older = testing_support::h200_device("NVIDIA A100");
  older.cc_major = 8;
  EXPECT_TRUE(attention_backward_sm90().refusal(*parsed("bf16 b=1 h=2 n=49 d=32"), older));
}

TEST(AttentionBackwardSm90Test, HasAFewConfigsForEachProblemThatFitTheDevice) {
  for (const int d : {16, 32, 64, 72, 80, 96, 128}) {
    for (const int n : {1, 49, 197, 577, 4096}) {
      const ProblemPtr problem = parsed(formatted("bf16 b=8 h=12 n={} d={}", n, d));
      const std::vector<Config> configs = configs_of(*problem);
      EXPECT_GE(configs.size(), 1u) << problem->text();
      EXPECT_LE(configs.size(), 70u) << problem->text();
      for (const Config& config : configs) {
        for (const KernelNeeds& needs : problem->op().kernels(*problem, config)) {
          EXPECT_LE(needs.shared_bytes, 232448) << config.text();
        }
      }
    }
  }
}

TEST(AttentionBackwardSm90Test, IsThatOfWhichTheDefaultIs) {
  // Where a CTA for each head would leave SMs idle, and under a causal mask.
  for (const char* const words : {"b=4 h=12 n=197 d=64", "b=32 h=12 n=197 d=64 causal"}) {
    const ProblemPtr problem = parsed(formatted("bf16 {}", words));
    const Config config = default_config(*problem, testing_support::h200_device());
    EXPECT_EQ(problem->op().family_of(config).name(), "sm90") << words;
    EXPECT_EQ(config.at("kGroups"), 2) << config.text();
  }
}

TEST(AttentionBackwardSm90Test, LaunchesTwoKernelsThatStayAndShareTwoNumbersOfEachQuery) {
  const ProblemPtr problem = parsed("bf16 b=32 h=12 hkv=4 nq=197 nk=70 d=64");
  Config config = default_of(*problem);
  config.set("kGroups", 2);
  const std::array<int, 2> resident = {1, 1};
  const LaunchPlan plan =
      problem->op().plan(*problem, config, testing_support::h200_device(), resident);
  ASSERT_EQ(plan.kernels.size(), 2u);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 132u);
  EXPECT_EQ(plan.kernels[1].shape.grid[0], 128u);  // 32 batches, 4 heads, a block of 128 keys
  EXPECT_EQ(plan.kernels[0].maps.size(), 5u);
  EXPECT_EQ(plan.kernels[1].maps.size(), 4u);
  EXPECT_EQ(plan.scratch_bytes, 32 * 12 * 208 * 8);
}

// Registers: no product waits for another, and nothing is spilled that counts.
class AttentionBackwardSm90CompileTest : public test::RealCompilerTest,
                                         public testing::WithParamInterface<int> {};

TEST_P(AttentionBackwardSm90CompileTest, DefaultsAreNeitherSerializedNorSpilled) {
  for (const char* words : {"n=197", "n=333 causal"}) {
    const ProblemPtr problem = parsed(formatted("bf16 b=32 h=12 {} d={}", words, GetParam()));
    const Config config = default_of(*problem);
    ASSERT_EQ(problem->op().family_of(config).name(), "sm90");
    const CompileResult result =
        compiler_->compile(problem->op().request(*problem, config, "sm_90"));
    EXPECT_EQ(result.status, CompileStatus::kOk) << config.text() << '\n' << result.log;
    EXPECT_LE(result.facts.spill_bytes, 32) << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(HeadSizes, AttentionBackwardSm90CompileTest,
                         testing::Values(32, 64, 72, 80, 96, 128));

}  // namespace
}  // namespace vitune::attention_backward_sm90_test
