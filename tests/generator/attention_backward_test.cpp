// tests/generator/attention_backward_test.cpp -- Texts of attention's gradients, their tensors,
// their space, and plans with and without a bias's gradient.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/attention_backward/operator.h"
#include "tests/devices.h"
#include "tests/generator/random_attention_backward.h"

namespace vitune::attention_backward_test {
namespace {

// A device of compute capability 8.0.
DeviceInfo older_device() {
  DeviceInfo device = testing_support::h200_device("NVIDIA A100");
  device.cc_major = 8;
  device.sm_count = 108;
  device.shared_per_block = 166912;
  device.shared_per_sm = 167936;
  return device;
}

AttentionBackwardProblem parsed(const std::string& text) {
  return AttentionBackwardProblem::parse(text);
}

std::string refusal(const char* text, ErrorCode code) {
  try {
    parsed(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return {};
}

TEST(AttentionBackwardProblemTest, TextsAreCanonical) {
  struct Case {
    const char *text, *canonical;
  };
  constexpr Case kCases[] = {
      {"d=64 n=197 h=12 b=32 bf16",
       "attention_backward bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"},
      {"bf16 b=2 h=4 n=9 d=64 do=bnhd dq=packed dk=packed dv=packed",
       "attention_backward bf16 b=2 h=4 nq=9 nk=9 d=64 layout=packed"},
      {"fp16 b=2 h=4 hkv=2 nq=9 nk=5 d=8 causal do=bhnd dq=@288,72,8 dk=bhnd dv=@160,80,16",
       "attention_backward fp16 b=2 h=4 hkv=2 nq=9 nk=5 d=8 layout=bnhd causal do=bhnd dq=bhnd "
       "dk=bhnd dv=@160,80,16"},
      {"bf16 b=2 h=4 n=9 d=64 bias=fp32:4x9x9 dbias=fp32",
       "attention_backward bf16 b=2 h=4 nq=9 nk=9 d=64 layout=packed bias=fp32:1x4x9x9 dbias"},
      {"bf16 b=2 h=4 n=9 d=64 bias=bf16:4x9x9 dbias=fp32 mask=bool:9x9 align=8",
       "attention_backward bf16 b=2 h=4 nq=9 nk=9 d=64 layout=packed bias=bf16:1x4x9x9 "
       "mask=bool:1x1x9x9 align=8 dbias=fp32"},
      {"bf16 b=1 h=1 n=1 d=8 dq=@7,8,9",
       "attention_backward bf16 b=1 h=1 nq=1 nk=1 d=8 layout=packed"},
  };
  for (const Case& each : kCases) EXPECT_EQ(parsed(each.text).text(), each.canonical);
}

TEST(AttentionBackwardProblemTest, ThousandsOfRandomTextsAreReadBack) {
  testing_support::RandomAttentionBackward random(20261128);
  int with_dbias = 0;
  for (int i = 0; i < 2000; ++i) {
    const AttentionBackwardProblem problem = random.next();
    with_dbias += problem.dbias ? 1 : 0;
    EXPECT_EQ(parsed(problem.text()), problem) << problem.text();
  }
  EXPECT_GT(with_dbias, 100);
}

TEST(AttentionBackwardProblemTest, WhatIsWrongIsToldWithASentence) {
  const auto usage = [](const char* text) { return refusal(text, ErrorCode::kUsage); };
  const auto unsupported = [](const char* text) { return refusal(text, ErrorCode::kUnsupported); };
  EXPECT_NE(usage("n=197 h=12 b=32 d=64").find("dtype is missing"), std::string::npos);
  EXPECT_NE(usage("bf16 b=1 h=1 n=9 d=8 lse").find("unknown word"), std::string::npos);
  EXPECT_NE(usage("bf16 b=1 h=1 n=9 d=8 dbias").find("needs bias="), std::string::npos);
  EXPECT_NE(usage("bf16 b=1 h=1 n=9 d=8 dq=ring").find("is no layout"), std::string::npos);
  EXPECT_NE(usage("bf16 b=1 h=1 n=9 d=8 do=packed").find("no layout of the output"),
            std::string::npos);
  EXPECT_NE(usage("bf16 b=1 h=1 n=9 d=8 bias=bf16:9x9 dbias=bool").find("is no type"),
            std::string::npos);
  EXPECT_NE(unsupported("bf16 b=2 h=1 n=9 d=8 k=@0,0,8").find("dk overlaps itself"),
            std::string::npos);
  EXPECT_NE(unsupported("bf16 b=1 h=1 n=9 d=8 bias=bf16:1x9 dbias").find("broadcast over query"),
            std::string::npos);
  EXPECT_NE(unsupported("bf16 b=1 h=1 n=9 d=8 bias=bf16:9x1 dbias").find("leave dbias out"),
            std::string::npos);
  EXPECT_NE(unsupported("bf16 b=1 h=1 n=9 d=136").find("head size"), std::string::npos);
  EXPECT_NE(unsupported("bf16 b=2048 h=2 nq=1 nk=16777216 d=8").find("split the batch"),
            std::string::npos);
}

TEST(AttentionBackwardProblemTest, EachElementIsMovedOnce) {
  const double rows = 2.0 * 4 * 9, tensor = rows * 64 * 2;
  EXPECT_EQ(parsed("bf16 b=2 h=4 n=9 d=64").min_bytes(), 8 * tensor + 4 * rows);
  EXPECT_EQ(parsed("bf16 b=2 h=4 n=9 d=64 bias=bf16:1x4x9x9 dbias=fp32").min_bytes(),
            8 * tensor + 4 * rows + 4 * 81 * 6);
  EXPECT_EQ(parsed("bf16 b=2 h=4 nq=9 nk=18 d=64 layout=bnhd causal").min_bytes(),
            8 * tensor + 4 * rows + 2 * tensor);
  EXPECT_EQ(parsed("bf16 b=2 h=4 n=9 d=64").flops(), 10.0 * rows * 9 * 64);
}

TEST(AttentionBackwardTensorsTest, GradientsLieAsTheirTensorsDo) {
  const auto specs = attention_backward_tensors(
      parsed("bf16 b=2 h=4 hkv=2 n=9 d=64 bias=bf16:2x1x9x9 mask=bool:9x9 dbias=fp32"));
  ASSERT_EQ(specs.size(), std::size_t{kAttentionBackwardTensors});
  const std::vector<std::string> names = {"q",   "k",    "v",  "bias", "mask", "out",
                                          "lse", "dout", "dq", "dk",   "dv",   "dbias"};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].name, names[i]);
    EXPECT_TRUE(specs[i].given) << names[i];
    EXPECT_EQ(specs[i].role, i < kAttentionBackwardDq ? Role::kInput : Role::kOutput) << names[i];
  }
  for (const int part : {0, 1, 2}) {
    const TensorSpec &of = specs[std::size_t(kAttentionBackwardQ + part)],
                     &gradient = specs[std::size_t(kAttentionBackwardDq + part)];
    EXPECT_EQ(gradient.strides, of.strides);
    EXPECT_EQ(gradient.offset, of.offset);
    EXPECT_EQ(gradient.shared, 1) << "one allocation, but not that of q, k and v";
  }
  EXPECT_EQ(specs[kAttentionBackwardDbias].extents, (TensorSpec::Dims{2, 1, 9, 9}));
  EXPECT_EQ(specs[kAttentionBackwardDbias].type, ElementType::kFp32);
  EXPECT_FALSE(attention_backward_tensors(
                   parsed("bf16 b=2 h=4 n=9 d=64 bias=bf16:9x9"))[kAttentionBackwardDbias]
                   .given);
}

// Batch entries side by side in rows of keys: values beside the last one would lie on the next row.
TEST(AttentionBackwardTensorsTest, KeysAndValuesAreApartWhereOneAllocationHasNoRoomForBoth) {
  const auto shared = [](const std::string& strides) {
    const auto specs = attention_backward_tensors(parsed(
        "bf16 b=8 h=3 nq=4 nk=16 d=8 k=@" + strides + " v=@" + strides + " dk=bnhd dv=bnhd"));
    return specs[kAttentionBackwardK].shared >= 0;
  };
  EXPECT_FALSE(shared("53,8,403"));
  EXPECT_TRUE(shared("53,8,419"));
  EXPECT_FALSE(shared("760,8,48"));
  EXPECT_TRUE(shared("768,8,48"));
}

TEST(AttentionBackwardSpaceTest, DefaultsAreOfTheSpaceOnEveryDevice) {
  for (const char* const text :
       {"bf16 b=32 h=12 n=197 d=64", "fp16 b=1 h=1 n=17 d=8 align=2",
        "bf16 b=4 h=16 n=4096 d=128 bias=fp32:1x16x4096x4096 mask=bool:4x1x1x4096 dbias"}) {
    const ProblemPtr problem = parsed(text);
    for (const DeviceInfo& device : {testing_support::h200_device(), older_device()}) {
      const ParameterSpace space = problem->op().space(*problem, device);
      const std::vector<Config> defaults = problem->op().defaults(*problem, device, space);
      EXPECT_GE(defaults.size(), 2u) << text;
      for (const Config& config : defaults) EXPECT_EQ(space.explain(config), std::nullopt);
    }
  }
}

// A plan of the family sm80, which has two kernels, and two more for dbias.
LaunchPlan plan_of(const char* text) {
  const ProblemPtr problem = parsed(text);
  const DeviceInfo device = older_device();
  const Operator& op = problem->op();
  const std::vector<Config> defaults = op.defaults(*problem, device, op.space(*problem, device));
  const auto own = std::ranges::find(
      defaults, "sm80", [&](const Config& each) { return std::string(op.family_of(each).name()); });
  if (own == defaults.end()) throw Error(ErrorCode::kFailure, "sm80 has no default");
  const Config& config = *own;
  const std::vector<int> resident(problem->op().kernels(*problem, config).size(), 1);
  return problem->op().plan(*problem, config, device, resident);
}

TEST(AttentionBackwardPlanTest, ABiasOfFewTilesIsSummedInParts) {
  const std::int64_t delta = 4 * 2048 * 3 * 49;
  const LaunchPlan without = plan_of("bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49");
  EXPECT_EQ(without.kernels.size(), 2u);
  EXPECT_EQ(without.scratch_bytes, delta);
  const LaunchPlan parts = plan_of("bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias");
  ASSERT_EQ(parts.kernels.size(), 4u);
  EXPECT_EQ(parts.kernels[2].kernel, 2u);
  EXPECT_EQ(parts.kernels[3].kernel, 3u);
  EXPECT_GT(parts.kernels[2].shape.grid[0], 3u);
  EXPECT_EQ(parts.kernels[2].shape.grid[0] % 3, 0u);
  EXPECT_EQ(parts.scratch_bytes,
            (delta + 255) / 256 * 256 + 4 * parts.kernels[2].shape.grid[0] * 49 * 49);
}

TEST(AttentionBackwardPlanTest, ABiasOfManyTilesIsWrittenAtOnce) {
  const LaunchPlan plan = plan_of("bf16 b=64 h=12 n=49 d=32 bias=bf16:64x12x49x49 dbias");
  EXPECT_EQ(plan.kernels.size(), 3u);
  EXPECT_EQ(plan.kernels[2].shape.grid[0], 64u * 12);
  EXPECT_EQ(plan.scratch_bytes, 4 * 64 * 12 * 49);
}

}  // namespace
}  // namespace vitune::attention_backward_test
