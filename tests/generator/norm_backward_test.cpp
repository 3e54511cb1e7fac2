// tests/generator/norm_backward_test.cpp -- Texts of norms' gradients, their space, and plans of
// one and of two kernels.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "generator/norm_backward/kernel_spec.h"
#include "generator/norm_backward/operator.h"
#include "generator/norm_backward/rows.h"
#include "tests/devices.h"
#include "tests/generator/asked.h"
#include "tests/generator/random_norm_backward.h"

namespace vitune::norm_backward_test {
namespace {

NormBackwardProblem parsed(const std::string& text) { return NormBackwardProblem::parse(text); }

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

TEST(NormBackwardProblemTest, TextsAreCanonical) {
  struct Case {
    const char *text, *canonical;
  };
  constexpr Case kCases[] = {
      {"weight bias bf16 d=768 m=4", "norm_backward bf16 m=4 d=768 weight bias"},
      {"bf16 m=4 d=768 x=bf16@768 params=bf16 eps=1e-5", "norm_backward bf16 m=4 d=768"},
      {"bf16 m=4 d=768 params=fp32", "norm_backward bf16 m=4 d=768"},
      {"bf16 m=4 d=768 weight stats eps=0.25", "norm_backward bf16 m=4 d=768 weight stats"},
      {"bf16 m=1 d=8 dy=@99 x=fp32@9 dx=@77 second=bf16@16",
       "norm_backward bf16 m=1 d=8 x=fp32 second=bf16"},
      {"fp16 m=4 d=8 rms x=fp32 residual=@8 dx=@16 second=fp16 factor=2",
       "norm_backward fp16 m=4 d=8 rms x=fp32 residual dx=@16 second=fp16 factor=2"},
      {"bf16 m=4 d=8 weight frozen dy=@0 residual=fp32@16 x=fp32 align=8",
       "norm_backward bf16 m=4 d=8 weight frozen dy=@0 x=fp32 residual=@16 align=8"},
  };
  for (const Case& each : kCases) EXPECT_EQ(parsed(each.text).text(), each.canonical);
}

TEST(NormBackwardProblemTest, ThousandsOfRandomTextsAreReadBack) {
  testing_support::RandomNormBackward random(20261128, {});
  for (int i = 0; i < 2000; ++i) {
    const NormBackwardProblem problem = random.next();
    EXPECT_EQ(parsed(problem.text()), problem) << problem.text();
  }
}

TEST(NormBackwardProblemTest, WhatIsWrongIsToldWithASentence) {
  const auto usage = [](const char* text) { return refusal(text, ErrorCode::kUsage); };
  EXPECT_NE(usage("m=4 d=8").find("type is missing"), std::string::npos);
  EXPECT_NE(usage("bf16 fp32 m=4 d=8").find("two types"), std::string::npos);
  EXPECT_NE(usage("bf16 d=8").find("m= (rows) is missing"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 frozen").find("needs weight"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 factor=2").find("needs second="), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 second=bf16 factor=3").find("divide the 4"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 second=bf16 factor=0").find("least"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 residual=fp32").find("type of x"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 dy=fp32").find("type of the first word"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 dx=@4").find("overlap"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 x=@-1").find("negative"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 second=bool").find("is no type"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 eps=0").find("eps"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 align=3").find("2, 4, 8 or 16"), std::string::npos);
  EXPECT_NE(usage("bf16 m=4 d=8 out=fp32").find("unknown word"), std::string::npos);
  refusal("bf16 m=4 d=8193", ErrorCode::kUnsupported);
  refusal("bf16 m=2147483647 d=8192 x=@9223372036854775807", ErrorCode::kUnsupported);
}

TEST(NormBackwardProblemTest, EachElementIsMovedOnce) {
  const double elements = 4.0 * 768;
  EXPECT_EQ(parsed("bf16 m=4 d=768 residual").min_bytes(), elements * 8);
  EXPECT_EQ(parsed("bf16 m=4 d=768 weight bias params=fp32 x=fp32 residual second=bf16 factor=2 "
                   "stats")
                .min_bytes(),
            elements * 16 + 3 * 768 * 4 + 4 * 8 + 2 * 4);
  EXPECT_EQ(parsed("fp32 m=4 d=768 rms weight frozen stats").min_bytes(),
            elements * 12 + 768 * 4 + 4 * 4);
}

TEST(NormBackwardTensorsTest, OutputsMayTakeThePlaceOfInputsOfTheSameForm) {
  const auto tensors = [](const char* text) { return norm_backward_tensors(parsed(text)); };
  const std::vector<int> all = {kNormBackwardDy, kNormBackwardX, kNormBackwardResidual};
  const std::vector<int> stream = {kNormBackwardX, kNormBackwardResidual};
  const auto plain = tensors("bf16 m=4 d=768 residual second=bf16");
  EXPECT_EQ(plain[kNormBackwardDx].may_replace, all);
  EXPECT_EQ(plain[kNormBackwardSecond].may_replace, all);
  const auto mixed = tensors("bf16 m=4 d=768 x=fp32 residual second=bf16");
  EXPECT_EQ(mixed[kNormBackwardDx].may_replace, stream);
  EXPECT_EQ(mixed[kNormBackwardSecond].may_replace, std::vector<int>{kNormBackwardDy});
  EXPECT_TRUE(tensors("bf16 m=4 d=768 dx=@800")[kNormBackwardDx].may_replace.empty());
}

TEST(NormBackwardTensorsTest, WhatIsAskedForIsGiven) {
  struct Case {
    const char* text;
    std::vector<int> given;  // beside dy, x and dx
  };
  const Case cases[] = {
      {"bf16 m=4 d=8", {}},
      {"bf16 m=4 d=8 weight", {kNormBackwardWeight, kNormBackwardDweight}},
      {"bf16 m=4 d=8 weight frozen", {kNormBackwardWeight}},
      {"bf16 m=4 d=8 bias", {kNormBackwardDbias}},
      {"bf16 m=4 d=8 stats", {kNormBackwardMean, kNormBackwardRstd}},
      {"bf16 m=4 d=8 rms stats", {kNormBackwardRstd}},
      {"bf16 m=4 d=8 second=fp16 factor=2", {kNormBackwardFactor, kNormBackwardSecond}},
  };
  for (const Case& each : cases) {
    std::vector<int> given;
    const std::vector<TensorSpec> tensors = norm_backward_tensors(parsed(each.text));
    for (int i = 0; i < kNormBackwardTensors; ++i) {
      const bool always = i == kNormBackwardDy || i == kNormBackwardX || i == kNormBackwardDx;
      if (tensors[static_cast<std::size_t>(i)].given && !always) given.push_back(i);
    }
    EXPECT_EQ(given, each.given) << each.text;
  }
}

TEST(NormBackwardSpaceTest, AccessesDivideRowsAndAreAligned) {
  const auto vector = [](const char* text) { return norm_backward_vector(parsed(text)); };
  EXPECT_EQ(vector("bf16 m=4 d=768 weight bias"), 8);
  EXPECT_EQ(vector("fp32 m=4 d=768"), 4);
  EXPECT_EQ(vector("bf16 m=4 d=768 x=fp32"), 8);  // two accesses of 16 bytes to x
  EXPECT_EQ(vector("bf16 m=4 d=768 align=4"), 2);
  EXPECT_EQ(vector("bf16 m=4 d=768 dy=@772"), 4);
  EXPECT_EQ(vector("bf16 m=4 d=768 second=bf16@770"), 2);
  EXPECT_EQ(vector("bf16 m=4 d=197"), 1);
}

TEST(NormBackwardSpaceTest, EveryProblemHasTwoDefaultsThatHoldItsRow) {
  const DeviceInfo device = testing_support::h200_device();
  for (const std::int64_t d : {1, 7, 64, 96, 197, 384, 768, 1024, 1152, 4096, 8191, 8192}) {
    for (const std::int64_t rows : {1, 197, 100352}) {
      for (const char* const words :
           {"bf16 weight bias residual", "fp32 weight bias residual second=fp32",
            "bf16 weight bias params=fp32 x=fp32 residual second=bf16", "fp16 rms"}) {
        const NormBackwardProblem problem =
            parsed(std::string(words) + " m=" + std::to_string(rows) + " d=" + std::to_string(d));
        const auto defaults = testing_support::defaults_of(problem, device);
        ASSERT_EQ(defaults.size(), 2u) << problem.text();  // one more, should that be blocked
        EXPECT_NE(defaults[0], defaults[1]);
        for (const Config& config : defaults) {
          EXPECT_EQ(testing_support::space_of(problem, device).explain(config), std::nullopt)
              << problem.text();
          const NormBackwardShape shape(problem, config);
          EXPECT_GE(shape.values() * shape.row_threads, d) << problem.text();
        }
      }
    }
  }
}

// The ring of words for sums over a row, and column sums for those of a CTA's teams alone that hand
// them on.
TEST(NormBackwardSpaceTest, SharedMemoryIsForWhatSeveralWarpsShare) {
  struct Case {
    const char* config;
    std::int64_t bytes;
  };
  constexpr Case kCases[] = {
      {"kRowThreads=32 kRows=1 kVector=8 kAhead=0 kCtas=4 kStreaming=0", 0},
      {"kRowThreads=8 kRows=4 kVector=8 kAhead=0 kCtas=4 kStreaming=0", 0},
      {"kRowThreads=16 kRows=4 kVector=8 kAhead=0 kCtas=4 kStreaming=0", 4 * 2 * 256},
      {"kRowThreads=64 kRows=1 kVector=4 kAhead=0 kCtas=4 kStreaming=0", 4 * 2 * 3 * 2},
      {"kRowThreads=64 kRows=2 kVector=4 kAhead=0 kCtas=4 kStreaming=0",
       4 * 2 * 256 + 2 * 4 * 2 * 3 * 2},
  };
  const ProblemPtr problem = parse_problem("norm_backward bf16 m=99 d=256 weight bias");
  for (const Case& each : kCases) {
    const auto needs = problem->op().kernels(*problem, Config::parse(each.config));
    ASSERT_EQ(needs.size(), 2u);
    EXPECT_EQ(needs[0].shared_bytes, each.bytes) << each.config;
  }
}

TEST(NormBackwardPlanTest, ASecondKernelAddsOnePartOfEachCta) {
  const DeviceInfo device = testing_support::h200_device();
  const Config config =
      Config::parse("kRowThreads=96 kRows=2 kVector=8 kAhead=1 kCtas=3 kStreaming=0");
  struct Case {
    const char* text;
    std::size_t kernels;
    std::uint32_t grid, finish;
    std::int64_t scratch;
  };
  constexpr Case kCases[] = {
      {"bf16 m=12608 d=768 weight bias", 2, 396, 192, 396 * 2 * 768 * 4},
      {"bf16 m=12608 d=768 weight", 2, 396, 96, 396 * 768 * 4},
      {"bf16 m=7 d=768 weight bias", 2, 4, 192, 4 * 2 * 768 * 4},
      {"bf16 m=12608 d=768 weight frozen bias", 2, 396, 96, 396 * 768 * 4},
      {"bf16 m=12608 d=768 weight frozen", 1, 396, 0, 0},
  };
  for (const Case& each : kCases) {
    const LaunchPlan plan = testing_support::plan_of(parsed(each.text), config, device, {1, 1});
    ASSERT_EQ(plan.kernels.size(), each.kernels) << each.text;
    EXPECT_EQ(plan.kernels[0].shape.grid[0], each.grid) << each.text;
    EXPECT_EQ(plan.scratch_bytes, each.scratch) << each.text;
    EXPECT_EQ(each.kernels > 1 ? plan.kernels[1].shape.grid[0] : 0, each.finish) << each.text;
    for (const KernelLaunch& launch : plan.kernels) {
      EXPECT_TRUE(launch.shape.waits_for_earlier) << each.text;
    }
  }
}

TEST(NormBackwardOperatorTest, ConfigsServeOtherRowCountsAndNothingElse) {
  const auto same = [](const std::string& a, const std::string& b) {
    return norm_backward().kernel_class(*parse_problem("norm_backward " + a)) ==
           norm_backward().kernel_class(*parse_problem("norm_backward " + b));
  };
  EXPECT_TRUE(same("bf16 m=4 d=768", "bf16 m=4000 d=768 eps=0.5"));
  EXPECT_TRUE(same("bf16 m=4 d=768 x=@776", "bf16 m=4 d=768 x=@1536"));
  EXPECT_TRUE(same("bf16 m=4 d=768 second=bf16 factor=2", "bf16 m=6 d=768 second=bf16 factor=3"));
  for (const char* const other :
       {"d=776", "d=768 x=@776", "d=768 align=2", "d=768 rms", "d=768 stats", "d=768 weight",
        "d=768 weight frozen", "d=768 bias", "d=768 residual", "d=768 x=fp32",
        "d=768 second=bf16"}) {
    EXPECT_FALSE(same("bf16 m=4 d=768", std::string("bf16 m=4 ") + other)) << other;
  }
}

TEST(NormBackwardJudgeTest, GradientsAreDrawnAroundZero) {
  int gradients = 0;
  for (const Fill& fill : norm_backward_inputs(parsed("bf16 m=4 d=768 residual"), kNormalDraw)) {
    if (fill.tensor != kNormBackwardDy && fill.tensor != kNormBackwardResidual) continue;
    ++gradients;
    EXPECT_EQ(fill.mean, 0) << fill.tensor;
  }
  EXPECT_EQ(gradients, 2);
}

}  // namespace
}  // namespace vitune::norm_backward_test
