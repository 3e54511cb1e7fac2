// tests/generator/norm_test.cpp -- Texts of norms, their space and what becomes of a problem's
// facts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "generator/norm/kernel_spec.h"
#include "generator/norm/operator.h"
#include "templates/norm/params.cuh"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune::norm_test {
namespace {

std::string canonical(const std::string& text) { return NormProblem::parse(text).text(); }

// The sentence of a refusal.
std::string refusal(const std::string& text, ErrorCode code) {
  try {
    NormProblem::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

TEST(NormProblemTest, WordsThatSayNothingNewAreLeftOut) {
  EXPECT_EQ(canonical("bf16 d=768 m=4 bias weight"), "norm bf16 m=4 d=768 weight bias");
  EXPECT_EQ(canonical("norm fp16 m=4 d=8 params=fp16 out=fp16@8 x=@8 eps=1e-5 align=16"),
            "norm fp16 m=4 d=8");
  EXPECT_EQ(canonical("norm fp16 m=4 d=8 rms eps=1e-6"), "norm fp16 m=4 d=8 rms");
  EXPECT_EQ(canonical("norm bf16 m=1 d=8 x=@64 out=fp32@9"), "norm bf16 m=1 d=8 out=fp32");
  EXPECT_EQ(canonical("norm bf16 m=2 d=8 params=fp32"), "norm bf16 m=2 d=8");
  EXPECT_EQ(canonical("norm bf16 m=2 d=8 residual=@0 sum=@16"),
            "norm bf16 m=2 d=8 residual=@0 sum=@16");
}

TEST(NormProblemTest, WhatIsWrongIsSaid) {
  const auto usage = [](const char* text) { return refusal(text, ErrorCode::kUsage); };
  EXPECT_NE(usage("norm m=4 d=8").find("type is missing"), std::string::npos);
  EXPECT_NE(usage("norm bf16 fp32 m=4 d=8").find("two types"), std::string::npos);
  EXPECT_NE(usage("norm bf16 d=8").find("m= (rows) is missing"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 sum").find("needs residual"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 residual=fp32").find("type of x"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 out=@4").find("overlap"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 x=@-1").find("negative"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 out=bool").find("is no type"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 eps=0").find("eps"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 align=3").find("2, 4, 8 or 16"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=4 d=8 heads=2").find("unknown word"), std::string::npos);
  EXPECT_NE(usage("norm bf16 m=99999999999999999999 d=8").find("64 bits"), std::string::npos);
  refusal("norm bf16 m=4 d=8193", ErrorCode::kUnsupported);
  refusal("norm fp8 m=4 d=8", ErrorCode::kUnsupported);
  refusal("norm bf16 m=2147483647 d=8192 x=@9223372036854775807", ErrorCode::kUnsupported);
}

TEST(NormSpaceTest, AccessesDivideRowsAndAreAligned) {
  const auto vector = [](const char* text) { return norm_vector(NormProblem::parse(text)); };
  EXPECT_EQ(vector("bf16 m=4 d=768 weight bias"), 8);
  EXPECT_EQ(vector("fp32 m=4 d=768"), 4);
  EXPECT_EQ(vector("bf16 m=4 d=768 out=fp32"), 8);  // two accesses of 16 bytes
  EXPECT_EQ(vector("bf16 m=4 d=768 stats"), 8);     // a value a row, stored by itself
  EXPECT_EQ(vector("bf16 m=4 d=768 align=4"), 2);
  EXPECT_EQ(vector("bf16 m=4 d=768 x=@772"), 4);
  EXPECT_EQ(vector("bf16 m=4 d=197"), 1);
  EXPECT_EQ(vector("bf16 m=4 d=198"), 2);
}

TEST(NormSpaceTest, TensorsOfFp32LieAtMultiplesOfTheirElements) {
  const auto p = NormProblem::parse("bf16 m=4 d=768 residual weight params=fp32 out=fp32 align=2");
  const std::vector<TensorSpec> tensors = norm_tensors(p);
  EXPECT_EQ(tensors[kNormX].alignment, 2);
  EXPECT_EQ(tensors[kNormResidual].alignment, 2);
  EXPECT_EQ(tensors[kNormWeight].alignment, 4);
  EXPECT_EQ(tensors[kNormOut].alignment, 4);
}

TEST(NormSpaceTest, EveryProblemHasADefaultThatHoldsItsRow) {
  const DeviceInfo device = testing_support::h200_device();
  for (const std::int64_t d : {1, 7, 96, 197, 768, 1152, 4096, 8191, 8192}) {
    for (const std::int64_t rows : {1, 197, 100352}) {
      NormProblem problem = NormProblem::parse("bf16 m=2 d=8");
      problem.rows = rows;
      problem.d = problem.x_row = problem.out_row = d;
      const auto defaults = testing_support::defaults_of(problem, device);
      ASSERT_EQ(defaults.size(), 2u) << problem.text();  // one more, should that be blocked
      EXPECT_NE(defaults[0], defaults[1]);
      for (const Config& config : defaults) {
        EXPECT_EQ(testing_support::space_of(problem, device).explain(config), std::nullopt)
            << problem.text();
        EXPECT_LE((d + config.at("kRowThreads") - 1) / config.at("kRowThreads"), 64);
      }
    }
  }
}

TEST(NormOperatorTest, ConfigsServeOtherRowCountsAndNothingElse) {
  const auto same = [](const char* a, const char* b) {
    return norm().kernel_class(*parse_problem(a)) == norm().kernel_class(*parse_problem(b));
  };
  EXPECT_TRUE(same("norm bf16 m=4 d=768", "norm bf16 m=4000 d=768 eps=0.5"));
  EXPECT_TRUE(same("norm bf16 m=4 d=768 x=@776", "norm bf16 m=4 d=768 x=@1536"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768", "norm bf16 m=4 d=776"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768", "norm bf16 m=4 d=768 x=@776"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768", "norm bf16 m=4 d=768 align=2"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768", "norm bf16 m=4 d=768 rms"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768 weight", "norm bf16 m=4 d=768 weight params=fp32"));
  EXPECT_FALSE(same("norm bf16 m=4 d=768", "norm bf16 m=4 d=768 stats"));
}

TEST(NormOperatorTest, OutputsMayTakeThePlaceOfInputsOfTheSameForm) {
  const auto tensors = [](const char* text) { return norm_tensors(NormProblem::parse(text)); };
  const auto plain = tensors("bf16 m=4 d=768 residual sum");
  EXPECT_EQ(plain[kNormSum].may_replace, (std::vector<int>{kNormX, kNormResidual}));
  EXPECT_EQ(plain[kNormOut].may_replace, (std::vector<int>{kNormX, kNormResidual}));
  EXPECT_TRUE(tensors("bf16 m=4 d=768 out=fp32")[kNormOut].may_replace.empty());
  EXPECT_TRUE(tensors("bf16 m=4 d=768 out=@800")[kNormOut].may_replace.empty());
  EXPECT_TRUE(tensors("bf16 m=4 d=768 x=@0")[kNormOut].may_replace.empty());
}

// docs/lab/2026-11-23-norms.md, "A default, read off the trials".
TEST(NormSpaceTest, ADefaultWalksWhereItsTensorsFillL2AndStartsEarlyWhereItCan) {
  struct Expected {
    const char* problem;
    std::int64_t walks;
  };
  constexpr Expected kExpected[] = {
      {"bf16 m=1576 d=768 weight bias", 0},            // 5 MB of 63
      {"bf16 m=6304 d=768 weight bias", 1},            // 19 MB
      {"bf16 m=8224 d=1280 weight bias", 1},           // 42 MB
      {"bf16 m=25216 d=768 weight bias", 0},           // 77 MB
      {"bf16 m=6304 d=768 weight bias residual", 1},   // 29 MB
      {"bf16 m=25216 d=768 weight bias residual", 0},  // 116 MB
  };
  DeviceInfo h200 = testing_support::h200_device(), older = h200, unknown = h200;
  h200.l2_bytes = older.l2_bytes = 62914560;
  older.cc_major = 8;
  unknown.l2_bytes = 0;
  for (const Expected& each : kExpected) {
    const NormProblem problem = NormProblem::parse(each.problem);
    const auto config = [&](const DeviceInfo& device) {
      return testing_support::defaults_of(problem, device).at(0);
    };
    EXPECT_EQ(config(h200).at("kPersistent"), each.walks) << each.problem;
    EXPECT_EQ(config(h200).at("kStreaming"), each.walks) << each.problem;
    EXPECT_EQ(config(h200).at("kEarlyStart"), 1) << each.problem;
    EXPECT_EQ(config(older).at("kEarlyStart"), 0) << each.problem;
    EXPECT_EQ(config(unknown).at("kPersistent"), 0) << each.problem;
  }
}

TEST(NormSpaceTest, CtasStartEarlyButForTensorsThatL2DoesNotHold) {
  struct Case {
    const char* problem;
    int cc_major;
    std::int64_t l2_bytes;
    bool has_late_ones;
  };
  constexpr Case kCases[] = {
      {"bf16 m=6304 d=768 weight bias", 9, 62914560, false},               // 19 MB
      {"bf16 m=8224 d=1280 weight bias residual sum", 9, 62914560, true},  // 84 MB
      {"bf16 m=6304 d=768 weight bias", 9, 0, true},                       // nothing is known
      {"bf16 m=6304 d=768 weight bias", 8, 62914560, true},
  };
  for (const Case& c : kCases) {
    DeviceInfo device = testing_support::h200_device();
    device.cc_major = c.cc_major;
    device.l2_bytes = c.l2_bytes;
    const ProblemPtr problem(NormProblem::parse(c.problem));
    const std::vector<Config> all = problem->op().space(*problem, device).enumerate();
    const auto starts_early = [](const Config& config) { return config.at("kEarlyStart") == 1; };
    EXPECT_TRUE(std::ranges::any_of(all, starts_early)) << c.problem;
    EXPECT_EQ(!std::ranges::all_of(all, starts_early), c.has_late_ones) << c.problem;
  }
}

// Values, weight and bias of a thread, all of fp32: 24 of each would not fit where 12 warps are the
// CTA.
TEST(NormSpaceTest, ADefaultHasRegistersForWhatAThreadHolds) {
  const DeviceInfo device = testing_support::h200_device();
  const NormProblem problem = NormProblem::parse("fp32 m=4096 d=8192 weight bias");
  const Config config = testing_support::defaults_of(problem, device).at(0);
  const std::int64_t values = 8192 / config.at("kRowThreads");
  EXPECT_LE(3 * values + 16, 65536 / 32 / config.at("kSmWarps")) << config.text();
}

TEST(NormOperatorTest, PersistentCtasAreAsManyAsFit) {
  const DeviceInfo device = testing_support::h200_device();
  const NormProblem problem = NormProblem::parse("bf16 m=10000 d=768");
  Config config = testing_support::defaults_of(problem, device).front();
  const auto grid = [&](std::int64_t persistent, int resident) {
    config.set("kPersistent", persistent);
    return testing_support::plan_of(problem, config, device, {resident})
        .kernels.front()
        .shape.grid[0];
  };
  const auto rows = config.at("kRows");
  EXPECT_EQ(grid(0, 2), (10000 + rows - 1) / rows);
  EXPECT_EQ(grid(1, 2), 264u);
}

}  // namespace
}  // namespace vitune::norm_test
