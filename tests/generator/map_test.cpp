// tests/generator/map_test.cpp -- Texts of maps, their canonical form, where their elements lie,
// their space and their plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "generator/map/kernel_spec.h"
#include "generator/map/operator.h"
#include "tests/devices.h"
#include "tests/generator/random_map.h"

namespace vitune::map_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string canonical(const std::string& text) { return MapProblem::parse(text).text(); }

std::string refusal(const std::string& text, ErrorCode code) {
  try {
    MapProblem::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

TEST(MapProblemTest, EveryWordReadsBack) {
  for (const char* const text :
       {"map n=32x151296 a=bf16 b=bf16@0x1 x=add(a,b) out=bf16@151552x1",
        "map n=6304 over=3072 a=bf16@4096+1 x=mul(a,a) sum y=rsqrt(add(div(r,3072),1e-06)) "
        "out=fp32",
        "map n=32x768 over=196 a=bf16@151296x1+768 x=a mean out=fp16 align=4",
        "map n=32x3x50176 a=u8@150528x1x3 h=fp32@0x1x0 x=sub(div(a,255),h) out=bf16 align=1",
        "map n=9 over=5x7 c=bool@0+7x1 e=fp32@35+1x5 x=where(c,e,-1e+30) softmax out=fp32@35+1x5",
        "map n=12 over=33 a=fp16 x=a max out=fp16@2"}) {
    EXPECT_EQ(canonical(text), text);
  }
}

// Equal work has one text: what a batch, a layout or a model wrote more than there is goes.
TEST(MapProblemTest, DimensionsThatAreNoneAreLeftOut) {
  EXPECT_EQ(canonical("map n=32x197x768 x=add(a,b) out=bf16 b=bf16 a=bf16 align=16"),
            "map n=4841472 a=bf16 b=bf16 x=add(a,b) out=bf16");
  EXPECT_EQ(canonical("map n=32x1x768 a=bf16@768x99x1 b=bf16@0x0x1 x=add(a,b) out=bf16"),
            "map n=32x768 a=bf16 b=bf16@0x1 x=add(a,b) out=bf16");
  EXPECT_EQ(canonical("map n=1x1 a=bf16@5x7 x=neg(a) out=bf16@3x2"),
            "map n=1 a=bf16 x=neg(a) out=bf16");
  EXPECT_EQ(canonical("map n=4x1 over=3x5x1 a=fp32 x=a sum y=r out=fp32"),
            "map n=4 over=15 a=fp32 x=a sum out=fp32");
  // The result's and the reduced ones stay apart.
  EXPECT_EQ(canonical("map n=4 over=8 a=fp32@8+1 x=a softmax out=fp32@8+1"),
            "map n=4 over=8 a=fp32 x=a softmax out=fp32");
}

TEST(MapProblemTest, WhatIsWrongIsSaid) {
  const auto usage = [](const std::string& words) {
    return refusal("map " + words, ErrorCode::kUsage);
  };
  EXPECT_THAT(usage("n=4 a=bf16 out=bf16"), HasSubstr("x= (the expression) is missing"));
  EXPECT_THAT(usage("n=4 a=bf16 x=a"), HasSubstr("out= (the type of the result) is missing"));
  EXPECT_THAT(usage("a=bf16 x=a out=bf16"), HasSubstr("n= (the extents of the result)"));
  EXPECT_THAT(usage("n=4 a=bf16 x=add(a,b) out=bf16"), HasSubstr("b= is missing"));
  EXPECT_THAT(usage("n=4 a=bf16 b=bf16 x=a out=bf16"), HasSubstr("b= is given, but x"));
  EXPECT_THAT(usage("n=4 x=1 out=bf16"), HasSubstr("no operand"));
  EXPECT_THAT(usage("n=4x5 a=bf16@1 x=a out=bf16"), HasSubstr("a stride for each of 2 dimensions"));
  EXPECT_THAT(usage("n=4 over=5 a=bf16@1 x=a sum out=bf16"), HasSubstr("behind '+' for each of 1"));
  EXPECT_THAT(usage("n=4 over=5 a=bf16 x=a sum out=bf16@5+1"), HasSubstr("each of 1 dimensions"));
  EXPECT_THAT(usage("n=4 a=bf16@-1 x=a out=bf16"), HasSubstr("stride -1 is negative"));
  EXPECT_THAT(usage("n=4 a=bf16@x x=a out=bf16"), HasSubstr("not a whole number"));
  EXPECT_THAT(usage("n=4x4 a=bf16 x=a out=bf16@3x1"), HasSubstr("out: elements overlap"));
  EXPECT_THAT(usage("n=4 a=bf16 x=a out=bf16@0"), HasSubstr("out: elements overlap"));
  EXPECT_THAT(usage("n=4 over=5 a=bf16 x=a out=bf16"), HasSubstr("sum, mean, max and softmax"));
  EXPECT_THAT(usage("n=4 a=bf16 x=a sum out=bf16"), HasSubstr("needs over="));
  EXPECT_THAT(usage("n=4 over=5 a=bf16 x=a sum max out=bf16"), HasSubstr("two reductions"));
  EXPECT_THAT(usage("n=4 a=bf16 x=a y=neg(r) out=bf16"), HasSubstr("y is of what is reduced"));
  EXPECT_THAT(usage("n=4 over=5 a=bf16 x=a sum y=1 out=bf16"), HasSubstr("does not have r"));
  EXPECT_THAT(usage("n=4 over=5 a=bf16 x=a sum y=neg(a) out=bf16"), HasSubstr("y: at character 5"));
  EXPECT_THAT(usage("n=4 a=int4 x=a out=bf16"), HasSubstr("use bf16, fp16, fp32, u8 or bool"));
  EXPECT_THAT(usage("n=0 a=bf16 x=a out=bf16"), HasSubstr("1 is the least"));
  EXPECT_THAT(usage("n=4 a=bf16 x=a out=bf16 align=3"), HasSubstr("1, 2, 4, 8 or 16"));
  EXPECT_THAT(usage("n=1x1x1x1x1x1x1x1x1x1x1 a=bf16 x=a out=bf16"),
              HasSubstr("too many dimensions"));
  const auto large = [](const std::string& words) {
    return refusal("map " + words, ErrorCode::kUnsupported);
  };
  EXPECT_THAT(large("n=4 a=bf16 x=a out=u8"), HasSubstr("use bf16, fp16 or fp32"));
  EXPECT_THAT(large("n=65536x65536 a=bf16 x=a out=bf16"), HasSubstr("2^31 - 1 elements"));
  EXPECT_THAT(large("n=2x2x2x2x2x2x2 a=bf16 x=a out=bf16"), HasSubstr("1 to 6"));
  EXPECT_THAT(large("n=2 a=bf16@2147483648 x=a out=bf16"), HasSubstr("above 2^31 - 1"));
  EXPECT_THAT(large("n=65536x3 a=bf16@2147483647x1 x=a out=bf16"), HasSubstr("a spans 2^47"));
  EXPECT_THAT(large("n=2x2x2x2x2 a=bf16@10000x1000x100x10x1 x=a out=bf16"),
              HasSubstr("a lies in memory with 5 separate dimensions"));
  EXPECT_THAT(large("n=2x2x2x2x2 a=bf16 x=a out=bf16@10000x1000x100x10x1"),
              HasSubstr("out lies in"));
  large("bf16 n=4 a=bf16 x=a out=bf16");
}

// Views of images, overlapping windows among them, are a few dense parts of memory.
TEST(MapMemoryTest, OperandsAreTheElementsThatTheyReach) {
  const MapMemory patches =
      operand_memory({32, 14, 14, 3, 16, 16}, {150528, 3584, 16, 50176, 224, 1});
  EXPECT_THAT(patches.extents, ElementsAre(32 * 150528));
  const MapMemory windows = operand_memory({2, 6, 6, 3, 3}, {81, 9, 1, 9, 1});
  EXPECT_THAT(windows.extents, ElementsAre(2, 8, 8));
  EXPECT_THAT(windows.strides, ElementsAre(81, 9, 1));
  const MapMemory even = operand_memory({4, 32}, {0, 2});
  EXPECT_THAT(even.extents, ElementsAre(32));
  EXPECT_THAT(even.strides, ElementsAre(2));
  // A result keeps the order of its dimensions.
  const MapMemory turned = result_memory({3, 5}, {1, 3});
  EXPECT_THAT(turned.extents, ElementsAre(3, 5));
  EXPECT_THAT(result_memory({3, 5}, {5, 1}).extents, ElementsAre(15));
}

TEST(MapMemoryTest, EveryReachedElementIsCountedOnce) {
  testing_support::RandomMap maps(7);
  for (int round = 0; round < 100; ++round) {
    const MapProblem p = maps.problem();
    for (const auto& operand : p.operands) {
      if (!operand) continue;
      std::set<std::int64_t> reached = {0};
      for (std::size_t i = 0; i < p.rank(); ++i) {
        std::set<std::int64_t> more;
        for (const std::int64_t each : reached) {
          for (std::int64_t j = 0; j < p.extents[i]; ++j)
            more.insert(each + j * operand->strides[i]);
        }
        reached = more;
        if (reached.size() > 5000) break;
      }
      if (reached.size() > 5000) continue;
      std::set<std::int64_t> told = {0};
      const MapMemory memory = operand_memory(p.extents, operand->strides);
      std::int64_t count = 1;
      for (std::size_t i = 0; i < memory.extents.size(); ++i) {
        std::set<std::int64_t> more;
        for (const std::int64_t each : told) {
          for (std::int64_t j = 0; j < memory.extents[i]; ++j)
            more.insert(each + j * memory.strides[i]);
        }
        told = more;
        count *= memory.extents[i];
      }
      EXPECT_EQ(told, reached) << p.text();
      EXPECT_EQ(count, static_cast<std::int64_t>(reached.size())) << p.text();
    }
  }
}

TEST(MapProblemTest, BytesAreOfEachElementOnce) {
  const auto bytes = [](const char* text) { return MapProblem::parse(text).min_bytes(); };
  EXPECT_EQ(bytes("map n=10x8 a=bf16 b=fp32@0x1 x=add(a,b) out=fp32"), 80 * 2 + 8 * 4 + 80 * 4);
  EXPECT_EQ(bytes("map n=10 over=8 a=u8 x=a sum out=fp16"), 80 + 10 * 2);
  EXPECT_EQ(bytes("map n=10 over=8 a=bf16 x=a softmax out=bf16"), 80 * 2 * 2);
}

TEST(MapAccessTest, AccessesDivideExtentsAndAreAligned) {
  const auto vector = [](const std::string& words, bool across = false) {
    return map_vector(MapProblem::parse("map " + words), across);
  };
  EXPECT_EQ(vector("n=4096 a=bf16 x=a out=bf16"), 8);
  EXPECT_EQ(vector("n=4096 a=bf16 x=a out=fp32"), 8);
  EXPECT_EQ(vector("n=4094 a=bf16 x=a out=bf16"), 2);
  EXPECT_EQ(vector("n=4096 a=bf16 x=a out=bf16 align=4"), 2);
  EXPECT_EQ(vector("n=4096 a=u8 x=a out=fp32 align=4"), 1);
  EXPECT_EQ(vector("n=64x64 a=bf16@65x1 x=a out=bf16"), 1);
  EXPECT_EQ(vector("n=64x64 a=bf16@68x1 x=a out=bf16"), 4);
  EXPECT_EQ(vector("n=64x64 a=bf16@0x1 b=fp32@1x0 x=add(a,b) out=bf16"), 8);
  EXPECT_EQ(vector("n=64x64 a=u8@192x3 x=a out=bf16"), 8);
  EXPECT_EQ(vector("n=32x768 over=196 a=bf16@150528x1+768 x=a mean out=bf16", true), 8);
  EXPECT_EQ(vector("n=32x768 over=196 a=bf16@150528x1+768 x=a mean out=bf16", false), 4);
}

TEST(MapAccessTest, UnrollingRunsWhereMostOperandsRepeat) {
  const auto along = [](const std::string& words, std::int64_t unroll) {
    return map_unrolled_dimension(MapProblem::parse("map " + words), unroll);
  };
  const std::string rope =
      "n=32x12x196x32 a=bf16@451584x64x2304x1 b=fp32@0x0x32x1 x=mul(a,b) out=bf16";
  EXPECT_EQ(along(rope, 4), 1U);
  EXPECT_EQ(along(rope, 1), 0U);
  EXPECT_EQ(along("n=32x196x32 a=bf16 x=a out=bf16@6272x1x196", 4), 1U);
  EXPECT_EQ(along("n=32x33x32 a=bf16 x=a out=bf16@1056x1x33", 2), 0U);
  EXPECT_EQ(along("n=6304x768 a=bf16 b=bf16@0x1 x=add(a,b) out=bf16", 2), 0U);
}

TEST(MapAccessTest, ColoursBetweenNeighboursAreReadWithThem) {
  const auto colour = [](const std::string& words, std::int64_t vector) {
    const MapProblem p = MapProblem::parse("map " + words);
    return map_colour_dimension(p, *p.operands[0], map_vector_dimension(p, false), vector);
  };
  EXPECT_EQ(colour("n=32x3x50176 a=u8@150528x1x3 x=a out=bf16", 8), 1);
  EXPECT_EQ(colour("n=32x3x50176 a=u8@150528x1x3 x=a out=bf16", 2), -1);  // 6 bytes
  EXPECT_EQ(colour("n=32x3x50176 a=u8@150528x1x3 x=a out=bf16 align=4", 8), -1);
  EXPECT_EQ(colour("n=32x2x64 a=bf16@128x1x2 x=a out=bf16", 8), 1);
  EXPECT_EQ(colour("n=32x3x64 a=bf16@192x1x3 x=a out=bf16", 8), -1);          // over a word's end
  EXPECT_EQ(colour("n=32x64 a=bf16@128x2 x=a out=bf16", 8), -1);              // nothing is between
  EXPECT_EQ(colour("n=32x2x64 a=bf16@128x1x2 x=a out=bf16@128x1x2", 8), -1);  // may be in place
}

TEST(MapTensorsTest, AResultMayTakeThePlaceOfAnOperandThatLiesAlike) {
  const auto may = [](const char* words) {
    return map_tensors(MapProblem::parse("map n=4x8 " + std::string(words)))[kMapOut].may_replace;
  };
  EXPECT_THAT(may("a=bf16 b=bf16@0x1 c=fp32 x=add(a,mul(b,c)) out=bf16"), ElementsAre(0));
  EXPECT_THAT(may("a=bf16@16x1 b=bf16@16x1 x=add(a,b) out=bf16@16x1"), ElementsAre(0, 1));
  EXPECT_THAT(may("over=3 a=bf16 x=a sum out=bf16"), ElementsAre());
}

TEST(MapTensorsTest, OperandsThatAreReadByElementsLieAnywhere) {
  const std::vector<TensorSpec> tensors = map_tensors(MapProblem::parse(
      "map n=4x64 a=bf16@128x2 b=bf16@64x1 c=u8@0x0 x=add(mul(a,b),c) out=bf16@128x2"));
  EXPECT_EQ(tensors[0].alignment, 2);
  EXPECT_EQ(tensors[1].alignment, 16);
  EXPECT_EQ(tensors[2].alignment, 1);
  EXPECT_EQ(tensors[kMapOut].alignment, 2);
  const auto colours = map_tensors(MapProblem::parse("map n=3x64 a=u8@1x3 x=a out=bf16"));
  EXPECT_EQ(colours[0].alignment, 16);
}

TEST(MapSpaceTest, EveryProblemHasDefaultsOnEveryArchitecture) {
  testing_support::RandomMap maps(11);
  for (int round = 0; round < 150; ++round) {
    const ProblemPtr problem = maps.problem();
    for (const char* const arch : {"sm_80", "sm_90", "sm_120"}) {
      const DeviceInfo device = *architecture_limits(arch);
      const ParameterSpace space = problem->op().space(*problem, device);
      const std::vector<Config> defaults = problem->op().defaults(*problem, device, space);
      ASSERT_FALSE(defaults.empty()) << problem->text();
      for (const Config& config : space.enumerate()) {
        for (const KernelNeeds& kernel : problem->op().kernels(*problem, config)) {
          EXPECT_LE(kernel.shared_bytes, 48 << 10) << problem->text() << ' ' << config.text();
        }
      }
    }
  }
}

TEST(MapSpaceTest, TextsOfRandomProblemsReadBack) {
  testing_support::RandomMap maps(13);
  for (int round = 0; round < 1000; ++round) {
    const MapProblem p = maps.problem();
    EXPECT_EQ(MapProblem::parse(p.text()), p) << p.text();
  }
}

// A batch is no fact of a kernel, and no extent but the outermost costs a division.
TEST(MapSourceTest, BatchesShareKernelsAndNothingForeignIsInTheSource) {
  const DeviceInfo device = testing_support::h200_device();
  const auto source = [&](const char* text) {
    const ProblemPtr problem = parse_problem(text);
    return problem->op().source(*problem, Config::parse("kAcross=0 kVector=8 kRowThreads=1 "
                                                        "kThreads=256 kUnroll=2"));
  };
  const std::string one = source(
      "map n=32x196x768 a=bf16 b=bf16@0x768x1 x=add(a,b) "
      "out=bf16@151296x768x1");
  EXPECT_EQ(one, source("map n=8x196x768 a=bf16 b=bf16@0x768x1 x=add(a,b) out=bf16@151296x768x1"));
  EXPECT_THAT(one, HasSubstr("return map_add(v[0], v[1]);"));
  EXPECT_EQ(one.find("add(a,b)"), one.npos);
}

TEST(MapPlanTest, GridsCoverAllResults) {
  const DeviceInfo device = testing_support::h200_device();
  testing_support::RandomMap maps(17);
  for (int round = 0; round < 50; ++round) {
    const ProblemPtr problem = maps.problem();
    for (const Config& config : problem->op().space(*problem, device).enumerate()) {
      const std::vector<int> resident = {1};
      const LaunchPlan plan = problem->op().plan(*problem, config, device, resident);
      const std::int64_t results = map_of(*problem).result_count();
      const std::int64_t covered =
          plan.kernels[0].shape.grid[0] * map_cta_results(map_of(*problem), config);
      EXPECT_GE(covered, results);
      EXPECT_LT(covered - map_cta_results(map_of(*problem), config), results);
    }
  }
}

}  // namespace
}  // namespace vitune::map_test
