// tests/generator/attention_backward_sm90_bias_test.cpp -- The family sm90_bias of attention's
// gradients: what it refuses, its space, its plan, and kernels that ptxas takes as they are. Needs
// no GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/format.h"
#include "generator/attention_backward/operator.h"
#include "generator/attention_backward/sm90_bias.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune::attention_backward_sm90_bias_test {
namespace {

ProblemPtr parsed(const std::string& text) {
  return AttentionBackwardProblem::parse("attention_backward " + text);
}

// BEiT-B at 224, and shapes of the other works with biases.
constexpr char kBeit[] = "bf16 b=32 h=12 n=197 d=64 layout=packed bias=bf16:1x12x197x197 dbias";
constexpr const char* kWorks[] = {
    kBeit,
    "bf16 b=16 h=16 n=577 d=64 layout=packed bias=bf16:1x16x577x577 dbias",
    "bf16 b=512 h=4 n=144 d=32 layout=packed bias=bf16:1x4x144x144 dbias",
    "bf16 b=2048 h=3 n=49 d=32 layout=packed bias=bf16:1x3x49x49 dbias",
    "fp16 b=32 h=16 n=196 d=80 bias=fp32:1x16x196x196 dbias=fp32",
    "bf16 b=32 h=12 n=197 d=128 bias=bf16:1x12x197x197",
    "bf16 b=4 h=2 n=96 d=128 bias=bf16:1x2x96x96 dbias=fp32",
};

// Configs of the family in a problem's space.
std::vector<Config> configs_of(const Problem& problem) {
  return problem.op().space(problem, testing_support::h200_device()).enumerate("sm90_bias");
}

// The family's own, whoever serves without tuning.
Config default_of(const Problem& problem) {
  const DeviceInfo device = testing_support::h200_device();
  const ParameterSpace space = problem.op().space(problem, device);
  const std::vector<Config> own = attention_backward_sm90_bias().defaults(problem, device, space);
  return own.empty() ? Config() : own.front();
}

TEST(AttentionBackwardSm90BiasTest, RefusesInASentence) {
  const struct {
    const char *problem, *sentence;
  } cases[] = {
      {"bf16 b=1 h=2 n=49 d=32", "for a bias"},
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49 mask=bool:1x1x49x49", "no mask"},
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49 causal", "no causal mask"},
      {"bf16 b=1 h=2 hkv=1 n=49 d=32 bias=bf16:1x2x49x49", "keys of their own"},
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49 align=8", "16-byte alignment, not 8"},
      {"bf16 b=1 h=2 n=49 d=32 bias=bf16:1x2x49x49 do=@3136,32,0", "strides that are not 0"},
      {"bf16 b=1 h=4 n=8192 d=32 bias=bf16:1x4x8192x8192 dbias", "more than 536870912 bytes"},
  };
  for (const auto& c : cases) {
    const auto reason =
        attention_backward_sm90_bias().refusal(*parsed(c.problem), testing_support::h200_device());
    ASSERT_TRUE(reason) << c.problem;
    EXPECT_NE(reason->find(c.sentence), std::string::npos) << *reason;
  }
  DeviceInfo older = testing_support::h200_device("NVIDIA A100");
  older.cc_major = 8;
  EXPECT_TRUE(attention_backward_sm90_bias().refusal(*parsed(kBeit), older));
}

TEST(AttentionBackwardSm90BiasTest, HasConfigsForEachWorkThatFitTheDevice) {
  for (const char* const text : kWorks) {
    const ProblemPtr problem = parsed(text);
    const std::vector<Config> configs = configs_of(*problem);
    EXPECT_GE(configs.size(), 4u) << text;
    EXPECT_LE(configs.size(), 4000u) << text;
    for (const Config& config : configs) {
      for (const KernelNeeds& needs : problem->op().kernels(*problem, config)) {
        EXPECT_LE(needs.shared_bytes, 232448) << config.text();
      }
    }
  }
}

TEST(AttentionBackwardSm90BiasTest, IsThatOfWhichTheDefaultIsBeyondShortRows) {
  for (const char* const text : kWorks) {
    const ProblemPtr problem = parsed(text);
    const Config config = default_config(*problem, testing_support::h200_device());
    const bool is_short = attention_backward_of(*problem).forward.nq <= 128;
    EXPECT_EQ(problem->op().family_of(config).name(), is_short ? "sm80_short" : "sm90_bias")
        << text;
  }
}

TEST(AttentionBackwardSm90BiasTest, DbiasHasTunablesWhereItIsAskedFor) {
  const ProblemPtr with = parsed(kBeit);
  const ProblemPtr without = parsed("bf16 b=32 h=12 n=197 d=64 bias=bf16:1x12x197x197");
  EXPECT_GT(default_of(*with).at("kDbiasGroups"), 0);
  EXPECT_EQ(default_of(*without).at("kDbiasGroups"), 0);
  EXPECT_EQ(with->op().kernels(*with, default_of(*with)).size(), 5u);
  EXPECT_EQ(without->op().kernels(*without, default_of(*without)).size(), 3u);
}

// The tiles of dbias, of more fragments than the keys have; places of sums for each unit and entry.
TEST(AttentionBackwardSm90BiasTest, ScratchHoldsNumbersOfQueriesTheBiasTwiceAndSums) {
  const ProblemPtr problem = parsed(kBeit);
  const AttentionBackwardProblem& p = attention_backward_of(*problem);
  Config config = default_of(*problem);
  for (const auto& [name, value] : {std::pair{"kGroups", 2},
                                    {"kKeyStep", 112},
                                    {"kQueryStep", 80},
                                    {"kStages", 2},
                                    {"kRowSlots", 2},
                                    {"kKeepsBias", 0},
                                    {"kDbiasGroups", 2},
                                    {"kDbiasTiles", 2},
                                    {"kDbiasStep", 64}}) {
    config.set(name, value);
  }
  const AttentionBackwardSm90Bias shape = attention_backward_sm90_bias_shape(p, config);
  EXPECT_EQ(shape.tile_keys(), 112);
  EXPECT_EQ(shape.fragment_pitch(false), 14);
  EXPECT_EQ(shape.fragment_pitch(true), 13);
  const std::array<int, 5> resident = {8, 1, 1, 1, 8};
  const LaunchPlan plan =
      problem->op().plan(*problem, config, testing_support::h200_device(), resident);
  ASSERT_EQ(plan.kernels.size(), 5u);
  EXPECT_EQ(plan.kernels[1].shape.grid[0], 132u);  // 66 units of two blocks
  EXPECT_EQ(plan.kernels[2].shape.grid[0], 132u);
  EXPECT_EQ(plan.kernels[3].shape.grid[0], 132u);  // 33 units of four tiles
  EXPECT_EQ(plan.kernels[4].shape.grid[0] % 12, 0u);
  const std::int64_t stats = 32 * 12 * 208 * 8, fragments = 12 * 4 * (14 + 13) * 2048;
  EXPECT_EQ(plan.scratch_bytes, stats + fragments + (33 + 12 - 1) * 197 * 200 * 4);
}

// Registers: no product waits for another, and nothing is spilled that counts.
class AttentionBackwardSm90BiasCompileTest : public test::RealCompilerTest,
                                             public testing::WithParamInterface<const char*> {};

TEST_P(AttentionBackwardSm90BiasCompileTest, DefaultsAreNeitherSerializedNorSpilled) {
  const ProblemPtr problem = parsed(GetParam());
  const Config config = default_of(*problem);
  ASSERT_EQ(problem->op().family_of(config).name(), "sm90_bias");
  const CompileResult result = compiler_->compile(problem->op().request(*problem, config, "sm_90"));
  EXPECT_EQ(result.status, CompileStatus::kOk) << config.text() << '\n' << result.log;
  EXPECT_LE(result.facts.spill_bytes, 32) << config.text();
}

INSTANTIATE_TEST_SUITE_P(Works, AttentionBackwardSm90BiasCompileTest, testing::ValuesIn(kWorks));

}  // namespace
}  // namespace vitune::attention_backward_sm90_bias_test
