// tests/generator/attention_backward_one_pass_test.cpp -- The family sm90_one_pass of attention's
// gradients: what it refuses, its space, its defaults, its plan, and kernels that ptxas takes as
// they are. Needs no GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/format.h"
#include "generator/attention_backward/operator.h"
#include "generator/attention_backward/sm90_one_pass.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune::attention_backward_one_pass_test {
namespace {

ProblemPtr parsed(const std::string& text) {
  return AttentionBackwardProblem::parse("attention_backward " + text);
}

std::vector<Config> configs_of(const Problem& problem) {
  std::vector<Config> own;
  const DeviceInfo device = testing_support::h200_device();
  for (Config& config : problem.op().space(problem, device).enumerate()) {
    if (problem.op().family_of(config).name() == "sm90_one_pass") own.push_back(std::move(config));
  }
  return own;
}

TEST(AttentionBackwardOnePassTest, RefusesInASentence) {
  const struct {
    const char *problem, *sentence;
  } cases[] = {
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49", "no bias and no mask"},
      {"bf16 b=1 h=2 n=49 d=32 mask=bool:1x1x49x49", "no bias and no mask"},
      {"bf16 b=1 h=2 n=49 d=32 causal", "no bias and no mask"},
      {"bf16 b=1 h=4 hkv=2 n=49 d=32", "query heads share"},
      {"bf16 b=1 h=2 n=49 d=24", "head sizes of 32 to 96"},
      {"bf16 b=1 h=2 n=49 d=104", "head sizes of 32 to 96"},
      {"bf16 b=1 h=2 n=4096 d=64", "96000 sums"},
      {"bf16 b=1 h=2 n=49 d=32 align=8", "16-byte alignment, not 8"},
      {"bf16 b=1 h=2 n=49 d=32 do=@3136,32,0", "strides that are not 0"},
  };
  for (const auto& c : cases) {
    const auto reason = attention_backward_sm90_one_pass().refusal(*parsed(c.problem),
                                                                   testing_support::h200_device());
    ASSERT_TRUE(reason) << c.problem;
    EXPECT_NE(reason->find(c.sentence), std::string::npos) << *reason;
  }
  DeviceInfo older = testing_support::h200_device("NVIDIA A100");
  older.cc_major = 8;
  EXPECT_TRUE(attention_backward_sm90_one_pass().refusal(*parsed("bf16 b=1 h=2 n=49 d=32"), older));
}

TEST(AttentionBackwardOnePassTest, HasAFewConfigsForEachProblemThatFitTheDevice) {
  for (const int d : {32, 64, 72, 80, 96}) {
    for (const int n : {100, 197, 577}) {
      const ProblemPtr problem = parsed(formatted("bf16 b=8 h=12 n={} d={}", n, d));
      const std::vector<Config> configs = configs_of(*problem);
      EXPECT_GE(configs.size(), 1u) << problem->text();
      EXPECT_LE(configs.size(), 12u) << problem->text();
      for (const Config& config : configs) {
        for (const KernelNeeds& needs : problem->op().kernels(*problem, config)) {
          EXPECT_LE(needs.shared_bytes, 232448) << config.text();
        }
      }
    }
  }
}

// Where most SMs have a head in each round, and L2 holds the sums between blocks of keys.
TEST(AttentionBackwardOnePassTest, IsThatOfWhichTheDefaultIsForManyHeads) {
  for (const char* const words :
       {"b=32 h=12 n=197 d=64 layout=packed", "b=32 h=16 n=257 d=80", "b=32 h=12 n=577 d=64",
        "b=32 h=16 n=729 d=72", "b=128 h=4 n=256 d=64", "b=8 h=16 n=1374 d=64",
        "b=64 h=6 n=576 d=64 dropout=0.1"}) {
    const ProblemPtr problem = parsed(formatted("bf16 {}", words));
    const Config config = default_config(*problem, testing_support::h200_device());
    EXPECT_EQ(problem->op().family_of(config).name(), "sm90_one_pass") << words;
  }
  struct Other {
    const char *words, *family;
  };
  for (const auto& [words, family] :
       {Other{"b=8 h=6 n=576 d=64", "sm90"}, Other{"b=24 h=6 n=1374 d=64", "sm90"},
        Other{"b=256 h=12 n=50 d=64", "sm80_short"}}) {
    const ProblemPtr problem = parsed(formatted("bf16 {}", words));
    const Config config = default_config(*problem, testing_support::h200_device());
    EXPECT_EQ(problem->op().family_of(config).name(), family) << words;
    EXPECT_FALSE(configs_of(*problem).empty()) << "it can be tuned";
  }
}

TEST(AttentionBackwardOnePassTest, LaunchesOneKernelWhoseCtasKeepTheirSumsOfDq) {
  Config config = {{"kFamily", 4}, {"kQueryStep", 80}, {"kStages", 2}, {"kKeyStages", 2}};
  const std::array<int, 1> resident = {1};
  const DeviceInfo device = testing_support::h200_device();
  const ProblemPtr many = parsed("bf16 b=32 h=12 nq=197 nk=140 d=64");
  const LaunchPlan plan = many->op().plan(*many, config, device, resident);
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 132u);
  EXPECT_EQ(plan.kernels[0].shape.block[0], 512u);
  EXPECT_EQ(plan.kernels[0].maps.size(), 5u);
  EXPECT_EQ(plan.scratch_bytes, 132 * 3 * 80 * 64 * 4);  // three steps
  // One block of keys: nothing waits.
  const ProblemPtr few = parsed("bf16 b=2 h=3 nq=197 nk=128 d=64");
  const LaunchPlan small = few->op().plan(*few, config, device, resident);
  EXPECT_EQ(small.kernels[0].shape.grid[0], 6u);
  EXPECT_EQ(small.scratch_bytes, 0);
}

// Registers, which the widest steps need most of: no product waits for another, and no config is
// pruned for its spills.
class AttentionBackwardOnePassCompileTest : public test::RealCompilerTest,
                                            public testing::WithParamInterface<const char*> {};

TEST_P(AttentionBackwardOnePassCompileTest, ConfigsAreNeitherSerializedNorPruned) {
  const ProblemPtr problem = parsed(formatted("bf16 b=32 h=16 {}", GetParam()));
  const std::vector<Config> configs = configs_of(*problem);
  std::int64_t widest = 0;
  for (const Config& config : configs) widest = std::max(widest, config.at("kQueryStep"));
  for (const Config& config : configs) {
    if (config.at("kQueryStep") != widest) continue;
    const CompileResult result =
        compiler_->compile(problem->op().request(*problem, config, "sm_90"));
    EXPECT_EQ(result.status, CompileStatus::kOk) << config.text() << '\n' << result.log;
    EXPECT_FALSE(
        problem->op().prune(*problem, config, result.facts, testing_support::h200_device()))
        << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, AttentionBackwardOnePassCompileTest,
                         testing::Values("n=197 d=64", "n=257 d=80", "n=729 d=72", "n=150 d=32",
                                         "n=150 d=96", "n=576 d=64 dropout=0.1",
                                         "n=257 d=80 dropout=0.1"));

}  // namespace
}  // namespace vitune::attention_backward_one_pass_test
