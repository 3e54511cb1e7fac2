// tests/generator/linear_weight_grad_test.cpp -- Texts of weight gradients, how they are accessed,
// their families and spaces, and their plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "generator/linear_weight_grad/kernel_spec.h"
#include "generator/linear_weight_grad/operator.h"
#include "generator/linear_weight_grad/sm80.h"
#include "generator/linear_weight_grad/sm90.h"
#include "tests/devices.h"

namespace vitune::linear_weight_grad_test {
namespace {

using testing::HasSubstr;

std::string canonical(const std::string& text) {
  return LinearWeightGradProblem::parse(text).text();
}

// The sentence of a refusal.
std::string refusal(const std::string& text, ErrorCode code) {
  try {
    LinearWeightGradProblem::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

TEST(LinearWeightGradProblemTest, WordsThatSayNothingNewAreLeftOut) {
  EXPECT_EQ(canonical("linear_weight_grad k=768 n=96 m=4 out=bf16 bf16 bias dy=@96 align=16"),
            "linear_weight_grad bf16 m=4 n=96 k=768 bias");
  EXPECT_EQ(canonical("linear_weight_grad fp16 m=1 n=9 k=8 dy=@64 x=@32 params=fp32"),
            "linear_weight_grad fp16 m=1 n=9 k=8");
}

TEST(LinearWeightGradProblemTest, EveryWordReadsBack) {
  for (const char* const text :
       {"linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32",
        "linear_weight_grad fp16 m=3 n=7 k=9 bias scale params=fp32 add dy=@8 x=@16 out=fp32 "
        "align=4",
        "linear_weight_grad bf16 m=2 n=768 k=3072 scale align=2"}) {
    EXPECT_EQ(canonical(text), text);
  }
}

TEST(LinearWeightGradProblemTest, WhatIsWrongIsSaid) {
  const auto usage = [](const std::string& words) {
    return refusal("linear_weight_grad bf16 m=4 n=8 k=16 " + words, ErrorCode::kUsage);
  };
  EXPECT_THAT(usage("fp16"), HasSubstr("two types"));
  EXPECT_THAT(usage("dy=@4"), HasSubstr("dy: rows of 8 elements overlap"));
  EXPECT_THAT(usage("x=16"), HasSubstr("x=@16"));
  EXPECT_THAT(usage("out=int8"), HasSubstr("use bf16, fp16 or fp32"));
  EXPECT_THAT(usage("align=3"), HasSubstr("2, 4, 8 or 16"));
  EXPECT_THAT(usage("out=fp32 align=2"), HasSubstr("4 bytes"));
  EXPECT_THAT(usage("scale params=fp32 align=2"), HasSubstr("4 bytes"));
  EXPECT_THAT(usage("residual"), HasSubstr("residual"));
  const auto alone = [](const std::string& words, ErrorCode code) {
    return refusal("linear_weight_grad " + words, code);
  };
  EXPECT_THAT(alone("bf16 m=4 n=8", ErrorCode::kUsage), HasSubstr("k= (columns of x)"));
  EXPECT_THAT(alone("bf16 m=0 n=8 k=8", ErrorCode::kUsage), HasSubstr("1 is the least"));
  EXPECT_THAT(alone("m=4 n=8 k=8", ErrorCode::kUsage), HasSubstr("type is missing"));
  alone("fp32 m=4 n=8 k=8", ErrorCode::kUnsupported);
  alone("bf16 m=4 n=8 k=8 out=fp16", ErrorCode::kUnsupported);
  alone("bf16 m=1073741825 n=8 k=8", ErrorCode::kUnsupported);
  alone("bf16 m=4 n=16777217 k=8", ErrorCode::kUnsupported);
  alone("bf16 m=4 n=16777216 k=16777216", ErrorCode::kUnsupported);
  alone("bf16 m=1073741824 n=8 k=8 dy=@1048576", ErrorCode::kUnsupported);
}

// Operations, and each element once: dy, x, and what is written, or read and written.
TEST(LinearWeightGradProblemTest, BytesAreOfWhatIsGivenAndAsked) {
  const auto bytes = [](const std::string& words) {
    return LinearWeightGradProblem::parse("linear_weight_grad bf16 m=10 n=3 k=5" + words)
        .min_bytes();
  };
  EXPECT_EQ(bytes(""), 10 * (3 + 5) * 2 + 3 * 5 * 2);
  EXPECT_EQ(bytes(" bias out=fp32"), 10 * (3 + 5) * 2 + (15 + 3) * 4);
  EXPECT_EQ(bytes(" bias add out=fp32"), 10 * (3 + 5) * 2 + 2 * (15 + 3) * 4);
  EXPECT_EQ(bytes(" bias scale"), 10 * (3 + 5) * 2 + (15 + 3 + 3) * 2 + (15 + 3 + 3) * 2);
}

TEST(LinearWeightGradAccessTest, AccessesDivideRowsAndAreAligned) {
  const auto accesses = [](const std::string& words) {
    const WeightGradAccesses found = weight_grad_accesses(
        LinearWeightGradProblem::parse("linear_weight_grad bf16 m=4 " + words));
    return std::array{found.dy_bytes, found.x_bytes, found.vector};
  };
  using Found = std::array<std::int64_t, 3>;
  EXPECT_EQ(accesses("n=768 k=768"), (Found{16, 16, 8}));
  EXPECT_EQ(accesses("n=100 k=147"), (Found{8, 2, 1}));
  EXPECT_EQ(accesses("n=101 k=148 dy=@104"), (Found{16, 8, 4}));
  EXPECT_EQ(accesses("n=96 k=96 align=4 out=fp32"), (Found{4, 4, 1}));
  EXPECT_EQ(accesses("n=96 k=96 align=8"), (Found{8, 8, 4}));
  EXPECT_EQ(accesses("n=96 k=96 align=8 scale params=fp32"), (Found{8, 8, 2}));
}

// The tensor that is added to may be the one that is written; no other may.
TEST(LinearWeightGradTensorsTest, GradientsMayReplaceWhatTheyAreAddedTo) {
  const auto tensors = [](const char* words) {
    return weight_grad_tensors(LinearWeightGradProblem::parse(
        "linear_weight_grad bf16 m=4 n=8 k=16 " + std::string(words)));
  };
  const std::vector<TensorSpec> all = tensors("bias scale add out=fp32");
  const std::pair<WeightGradTensor, WeightGradTensor> pairs[] = {
      {kWeightGradDw, kWeightGradDwBefore},
      {kWeightGradDb, kWeightGradDbBefore},
      {kWeightGradDscale, kWeightGradDscaleBefore}};
  for (const auto& [written, before] : pairs) {
    EXPECT_EQ(all[written].may_replace, std::vector<int>{before}) << all[written].name;
    EXPECT_EQ(all[written].strides, all[before].strides);
    EXPECT_EQ(all[written].type, all[before].type);
  }
  std::set<std::string> given;
  for (const TensorSpec& tensor : tensors("")) {
    EXPECT_TRUE(tensor.may_replace.empty());
    if (tensor.given) given.insert(tensor.name);
  }
  EXPECT_EQ(given, (std::set<std::string>{"dy", "x", "dw"}));
}

TEST(LinearWeightGradSpaceTest, EveryProblemHasDefaultsOnEveryArchitecture) {
  for (const char* const arch : {"sm_80", "sm_86", "sm_90", "sm_120"}) {
    const DeviceInfo device = *architecture_limits(arch);
    for (const std::int64_t m : {1, 197, 12608, 200704}) {
      for (const std::int64_t n : {1, 96, 768, 16384}) {
        for (const std::int64_t k : {3, 96, 3072, 16384}) {
          for (const bool scale : {false, true}) {
            LinearWeightGradProblem p =
                LinearWeightGradProblem::parse("linear_weight_grad bf16 m=2 n=2 k=2 bias");
            p.m = m;
            p.n = p.dy_row = n;
            p.k = p.x_row = k;
            p.scale = scale;
            const ProblemPtr problem = p;
            const Operator& op = problem->op();
            const ParameterSpace space = op.space(*problem, device);
            const std::vector<Config> defaults = op.defaults(*problem, device, space);
            ASSERT_FALSE(defaults.empty()) << arch << ' ' << problem->text();
            for (const Config& config : defaults) {
              EXPECT_EQ(space.explain(config), std::nullopt) << problem->text();
            }
          }
        }
      }
    }
  }
}

// Few weights of many rows are split, so that every SM has something to do.
TEST(LinearWeightGradSpaceTest, DefaultsFillTheDevice) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const sizes :
       {"m=12608 n=3072 k=768", "m=12608 n=768 k=768", "m=25216 n=384 k=384",
        "m=21984 n=4096 k=1024", "m=200704 n=96 k=96", "m=4608 n=384 k=1152"}) {
    const LinearWeightGradProblem p = LinearWeightGradProblem::parse(
        "linear_weight_grad bf16 bias out=fp32 " + std::string(sizes));
    const ProblemPtr problem = p;
    const Config config = default_config(*problem, device);
    ASSERT_EQ(config.at("kPair"), 0);
    const std::int64_t ctas = ceil_div(p.n, config.at("kBlockM")) *
                              ceil_div(p.k, config.at("kBlockN")) * config.at("kSplits");
    const std::int64_t rounds = (ctas + device.sm_count - 1) / device.sm_count;
    EXPECT_GE(static_cast<double>(ctas), 0.75 * static_cast<double>(rounds * device.sm_count))
        << sizes << ' ' << config.text();
  }
}

// A second kernel that adds parts takes longer than few rows do.
TEST(LinearWeightGradSpaceTest, PartsOfFewRowsAreAddedByClusters) {
  const DeviceInfo device = testing_support::h200_device();
  const auto family = [&](const std::string& words) {
    const ProblemPtr problem = parse_problem("linear_weight_grad bf16 " + words + " out=fp32");
    return problem->op().family(default_config(*problem, device));
  };
  EXPECT_EQ(family("m=1576 n=384 k=384 bias"), "sm90_split_m");
  EXPECT_EQ(family("m=4608 n=1152 k=384 bias"), "sm90_split_m");
  EXPECT_EQ(family("m=200704 n=288 k=96 bias"), "sm90");
  EXPECT_EQ(family("m=21984 n=3072 k=1024 bias"), "sm90");
}

TEST(LinearWeightGradFamilyTest, Sm90ServesWhatTensorMapsDescribe) {
  const DeviceInfo h200 = testing_support::h200_device();
  const auto refused = [&](const std::string& words, const DeviceInfo& device) {
    const ProblemPtr problem = parse_problem("linear_weight_grad bf16 " + words);
    return weight_grad_sm90().refusal(*problem, device).value_or("served");
  };
  for (const char* const words :
       {"m=64 n=64 k=64", "m=64 n=33 k=40 dy=@40 x=@48 bias scale add out=fp32", "m=1 n=33 k=40"}) {
    EXPECT_EQ(refused(words, h200), "served") << words;
  }
  EXPECT_THAT(refused("m=64 n=64 k=64 align=8", h200), HasSubstr("16-byte alignment, not 8"));
  EXPECT_THAT(refused("m=64 n=66 k=64", h200), HasSubstr("begin at 16 bytes"));
  EXPECT_THAT(refused("m=64 n=64 k=64 x=@68", h200), HasSubstr("begin at 16 bytes"));
  EXPECT_THAT(refused("m=64 n=64 k=68 x=@72", h200), HasSubstr("multiple of 8"));
  for (const char* const arch : {"sm_80", "sm_89", "sm_100", "sm_120"}) {
    EXPECT_THAT(refused("m=64 n=64 k=64", *architecture_limits(arch)), HasSubstr("9.0"));
  }
  // Many products are not for the slower one, where both could.
  const auto sm80 = [&](const std::string& words, const DeviceInfo& device) {
    const ProblemPtr problem = parse_problem("linear_weight_grad bf16 " + words);
    return weight_grad_sm80().refusal(*problem, device).value_or("served");
  };
  EXPECT_THAT(sm80("m=12608 n=768 k=768", h200), HasSubstr("sm90 serves it"));
  EXPECT_EQ(sm80("m=12608 n=768 k=770", h200), "served");
  EXPECT_EQ(sm80("m=4608 n=384 k=384", h200), "served");
  EXPECT_EQ(sm80("m=12608 n=768 k=768", *architecture_limits("sm_89")), "served");
}

// Parts that a cluster adds: for few tiles, without a scale; one kernel and no memory between.
TEST(LinearWeightGradFamilyTest, SplitMIsForFewTilesAndAddsInOneKernel) {
  const DeviceInfo h200 = testing_support::h200_device();
  const auto refused = [&](const std::string& words, const DeviceInfo& device) {
    const ProblemPtr problem = parse_problem("linear_weight_grad bf16 " + words);
    return weight_grad_sm90_split_m().refusal(*problem, device).value_or("served");
  };
  EXPECT_EQ(refused("m=128 n=33 k=40 dy=@40 bias add out=fp32", h200), "served");
  EXPECT_THAT(refused("m=128 n=64 k=64 scale", h200), HasSubstr("whole rows of dw"));
  EXPECT_THAT(refused("m=64 n=64 k=64", h200), HasSubstr("not divided"));
  EXPECT_THAT(refused("m=128 n=64 k=64 align=8", h200), HasSubstr("16-byte alignment"));
  EXPECT_THAT(refused("m=128 n=64 k=64", *architecture_limits("sm_100")), HasSubstr("9.0"));

  const ProblemPtr few = parse_problem("linear_weight_grad bf16 m=1576 n=384 k=1536 bias out=fp32");
  const ParameterSpace space = few->op().space(*few, h200);
  const auto of = [](std::int64_t m, std::int64_t n, std::int64_t stages, std::int64_t parts,
                     std::int64_t shares = 0) {
    return Config{{"kFamily", 4},
                  {"kBlockM", m},
                  {"kBlockN", n},
                  {"kBlockK", 0},
                  {"kWarpM", 0},
                  {"kWarpN", 0},
                  {"kStages", stages},
                  {"kGroups", 2},
                  {"kSplits", parts},
                  {"kPair", 0},
                  {"kSharedRowSums", shares}};
  };
  const auto why_not = [&](const Config& config) {
    return space.explain(config).value_or("legal");
  };
  EXPECT_EQ(why_not(of(128, 192, 5, 4)), "legal");
  EXPECT_EQ(why_not(of(128, 192, 5, 4, 1)), "legal");
  EXPECT_THAT(why_not(of(128, 192, 3, 4)), HasSubstr("5 are of use"));
  EXPECT_THAT(why_not(of(128, 64, 4, 8)), HasSubstr("two CTAs per SM"));
  const ProblemPtr without = parse_problem("linear_weight_grad bf16 m=1576 n=384 k=1536");
  EXPECT_THAT(without->op().space(*without, h200).explain(of(128, 192, 5, 4, 1)).value_or("legal"),
              HasSubstr("where there are any"));

  const Config config = of(128, 192, 5, 4);
  const std::vector<KernelNeeds> kernels = few->op().kernels(*few, config);
  ASSERT_EQ(kernels.size(), 1u);
  const LaunchPlan plan = few->op().plan(*few, config, h200, std::vector<int>{1});
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.scratch_bytes, 0);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 3u * 8 * 4);
  EXPECT_EQ(plan.kernels[0].shape.shared_bytes,
            static_cast<std::uint32_t>(kernels[0].shared_bytes));
  EXPECT_THAT(few->op().source(*few, config), HasSubstr("__cluster_dims__(4, 1, 1)"));

  const Config sharing = of(128, 192, 5, 4, 1);
  const LaunchPlan two = few->op().plan(*few, sharing, h200, std::vector<int>{1, 1});
  EXPECT_EQ(few->op().kernels(*few, sharing).size(), 2u);
  EXPECT_EQ(two.kernels.size(), 2u);
  EXPECT_EQ(two.scratch_bytes, 4 * 8 * 384 * 4);
}

// A direct kernel needs nothing between: only a bias' sums, a scale or parts do.
TEST(LinearWeightGradPlanTest, ASecondKernelIsThereWhereSomethingIsLeftToAdd) {
  const DeviceInfo device = testing_support::h200_device();
  const auto plan_of = [&](const std::string& words, std::int64_t splits) {
    const ProblemPtr problem = parse_problem("linear_weight_grad bf16 m=640 n=64 k=96 " + words);
    const Config config = {{"kFamily", 1}, {"kBlockM", 64}, {"kBlockN", 64},    {"kStages", 4},
                           {"kGroups", 1}, {"kPair", 0},    {"kSplits", splits}};
    const std::vector<int> resident(problem->op().kernels(*problem, config).size(), 1);
    return problem->op().plan(*problem, config, device, resident);
  };
  EXPECT_EQ(plan_of("", 1).kernels.size(), 1u);
  EXPECT_EQ(plan_of("", 1).scratch_bytes, 0);
  EXPECT_EQ(plan_of("add out=fp32", 1).kernels.size(), 1u);
  // Two tiles along k, each with its share of the rows' sums.
  EXPECT_EQ(plan_of("bias", 1).kernels.size(), 2u);
  EXPECT_EQ(plan_of("bias", 1).scratch_bytes, 2 * 64 * 4);
  EXPECT_EQ(plan_of("scale", 1).scratch_bytes, 64 * 96 * 4);
  EXPECT_EQ(plan_of("bias", 3).scratch_bytes, 3 * 64 * 96 * 4 + 3 * 2 * 64 * 4);
}

}  // namespace
}  // namespace vitune::linear_weight_grad_test
