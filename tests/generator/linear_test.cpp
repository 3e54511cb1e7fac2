// tests/generator/linear_test.cpp -- Texts of linear layers, how they are accessed, their space and
// their plans.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/operator.h"
#include "generator/linear/sm80.h"
#include "generator/linear/sm90.h"
#include "templates/linear/params.cuh"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune::linear_test {
namespace {

std::string canonical(const std::string& text) { return LinearProblem::parse(text).text(); }

// The sentence of a refusal.
std::string refusal(const std::string& text, ErrorCode code) {
  try {
    LinearProblem::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

TEST(LinearProblemTest, WordsThatSayNothingNewAreLeftOut) {
  EXPECT_EQ(canonical("linear k=768 n=96 m=4 bf16 bias act=none"),
            "linear bf16 m=4 n=96 k=768 bias");
  EXPECT_EQ(canonical("linear fp16 m=4 n=9 k=8 x=@8 w=@8 out=fp16@9 params=fp32 align=16"),
            "linear fp16 m=4 n=9 k=8");
  EXPECT_EQ(canonical("linear bf16 m=1 n=9 k=8 x=@64 out=fp32@10 residual=@11 aux=@12"),
            "linear bf16 m=1 n=9 k=8 residual out=fp32 aux");
  EXPECT_EQ(canonical("linear bf16 m=6 n=9 k=8 residual period=6 rows=6+0"),
            "linear bf16 m=6 n=9 k=8 residual");
  EXPECT_EQ(canonical("linear bf16 m=6 n=9 k=8 rows=6+1"), "linear bf16 m=6 n=9 k=8");
  EXPECT_EQ(canonical("linear bf16 m=1 n=9 k=8 wt dact=silu pre=@16 post=@24"),
            "linear bf16 m=1 n=9 k=8 dact=silu wt post");
  EXPECT_EQ(canonical("linear bf16 m=6 n=9 k=8 dact=none"), "linear bf16 m=6 n=9 k=8");
  EXPECT_EQ(canonical("linear bf16 m=6 n=9 k=64 eps=1e-5 norm=moments:64"),
            "linear bf16 m=6 n=9 k=64 norm=moments:64");
}

TEST(LinearProblemTest, EveryWordReadsBack) {
  for (const char* const text :
       {"linear bf16 m=392 n=768 k=588 bias act=gelu_tanh scale params=fp32 x=@592 w=@600 "
        "residual=@776 period=196 out=fp32@800 rows=196+1 aux=@784 align=8",
        "linear fp16 m=6304 n=768 k=3072 bias scale wt residual aux",
        "linear fp16 m=6304 n=768 k=3072 norm=rms",
        "linear bf16 m=6304 n=768 k=3072 norm=layer bias",
        "linear bf16 m=197 n=768 k=3072 bias residual moments=32",
        "linear bf16 m=6304 n=3072 k=768 norm=moments:192 eps=1e-06 bias act=gelu moments=96",
        "linear bf16 m=2 n=768 k=3072 act=quick_gelu wt=@1024",
        "linear bf16 m=12608 n=3072 k=768 dact=gelu wt",
        "linear fp16 m=6304 n=96 k=64 dact=gelu_tanh wt=@104 pre=@112 out=@120 post=@128",
        "linear bf16 m=394 n=768 k=3072 bias scale factor=197 residual out=fp32",
        "linear bf16 m=392 n=768 k=768 factor=196 residual period=196 rows=196+1"}) {
    EXPECT_EQ(canonical(text), text);
  }
}

TEST(LinearProblemTest, WhatIsWrongIsSaid) {
  const auto usage = [](const std::string& words) {
    return refusal("linear bf16 m=4 n=8 k=16 " + words, ErrorCode::kUsage);
  };
  EXPECT_NE(usage("fp16").find("two types"), std::string::npos);
  EXPECT_NE(usage("act=tanh").find("gelu_tanh, quick_gelu"), std::string::npos);
  EXPECT_NE(usage("norm=batch").find("none, layer, rms or moments:32"), std::string::npos);
  EXPECT_NE(usage("norm=rms align=2").find("4 bytes"), std::string::npos);
  EXPECT_NE(usage("norm=moments").find("columns of a block"), std::string::npos);
  EXPECT_NE(usage("norm=layer:32").find("no other norm"), std::string::npos);
  EXPECT_NE(usage("norm=moments:x").find("norm=moments"), std::string::npos);
  EXPECT_NE(usage("eps=1e-6").find("eps= is for norm=moments"), std::string::npos);
  EXPECT_NE(usage("moments=0").find("a multiple of 32"), std::string::npos);
  EXPECT_NE(usage("moments=-32").find("a multiple of 32"), std::string::npos);
  refusal("linear bf16 m=4 n=64 k=64 norm=moments:32 eps=0", ErrorCode::kUsage);
  refusal("linear bf16 m=4 n=64 k=64 norm=moments:48", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=64 k=96 norm=moments:64", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=96 k=64 moments=64", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=64 k=64 moments=32 out=fp32", ErrorCode::kUnsupported);
  EXPECT_NE(usage("x=@8").find("overlap"), std::string::npos);
  EXPECT_NE(usage("x=16").find("x=@16"), std::string::npos);
  EXPECT_NE(usage("wt=@4").find("w: rows of 8 elements overlap"), std::string::npos);
  EXPECT_NE(usage("w=@16 wt").find("wt [k, n]"), std::string::npos);
  EXPECT_NE(usage("period=2").find("needs one"), std::string::npos);
  EXPECT_NE(usage("rows=3+1").find("m=4 is no multiple"), std::string::npos);
  EXPECT_NE(usage("rows=2").find("rows=196+1"), std::string::npos);
  EXPECT_NE(usage("rows=2+-1").find("0 rows or more"), std::string::npos);
  EXPECT_NE(usage("dact=erf").find("use none, relu, gelu, gelu_tanh"), std::string::npos);
  EXPECT_NE(usage("pre=@8").find("say of which activation"), std::string::npos);
  EXPECT_NE(usage("post").find("which is there with dact="), std::string::npos);
  EXPECT_NE(usage("dact=gelu pre=@4").find("pre: rows of 8 elements overlap"), std::string::npos);
  EXPECT_NE(usage("dact=gelu post=@4").find("post: rows of 8 elements overlap"), std::string::npos);
  EXPECT_NE(usage("factor=0").find("factor=: 1 is the least"), std::string::npos);
  EXPECT_NE(usage("factor=3").find("m=4 is a multiple of it"), std::string::npos);
  EXPECT_NE(usage("factor=2 align=2").find("4 bytes"), std::string::npos);
  EXPECT_NE(usage("align=3").find("2, 4, 8 or 16"), std::string::npos);
  EXPECT_NE(usage("out=fp32 align=2").find("4 bytes"), std::string::npos);
  for (const std::string other : {"norm=rms", "bias", "act=relu", "scale", "residual", "factor=2",
                                  "aux", "moments=32", "rows=2+1", "out=fp32"}) {
    const std::string said =
        refusal("linear bf16 m=4 n=32 k=16 dact=gelu " + other, ErrorCode::kUnsupported);
    EXPECT_NE(said.find("dact= and " + other.substr(0, other.find('=') + 1)), std::string::npos)
        << said;
  }
  EXPECT_NE(refusal("linear bf16 m=4 n=8 k=8 factor=2 norm=rms", ErrorCode::kUnsupported)
                .find("without norm="),
            std::string::npos);
  EXPECT_NE(refusal("linear bf16 m=4 n=8 k=8 factor=4 rows=2+1", ErrorCode::kUnsupported)
                .find("it must be 2 too"),
            std::string::npos);
  EXPECT_NE(refusal("linear bf16 m=4 n=8", ErrorCode::kUsage).find("k= (columns of x)"),
            std::string::npos);
  refusal("linear bf16 m=4 n=8 k=0", ErrorCode::kUsage);
  refusal("linear fp32 m=4 n=8 k=8", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=8 k=8 out=fp16", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=16777217 k=8", ErrorCode::kUnsupported);
  refusal("linear bf16 m=1073741825 n=8 k=8", ErrorCode::kUnsupported);
  refusal("linear bf16 m=1073741824 n=16777216 k=8", ErrorCode::kUnsupported);
  refusal("linear bf16 m=1073741824 n=8 k=16777216", ErrorCode::kUnsupported);
  refusal("linear bf16 m=4 n=8 k=8 residual period=1 rows=2+1", ErrorCode::kUnsupported);
}

TEST(LinearAccessTest, AccessesDivideRowsAndAreAligned) {
  const auto accesses = [](const std::string& words) {
    return linear_accesses(LinearProblem::parse("linear bf16 m=4 " + words));
  };
  EXPECT_EQ(accesses("n=768 k=768 bias"), (LinearAccesses{16, 16, 8}));
  EXPECT_EQ(accesses("n=100 k=147"), (LinearAccesses{2, 2, 4}));
  EXPECT_EQ(accesses("n=100 k=147 x=@152 w=@148"), (LinearAccesses{16, 8, 4}));
  EXPECT_EQ(accesses("n=100 k=152 wt"), (LinearAccesses{16, 8, 4}));
  EXPECT_EQ(accesses("n=96 k=64 residual=@98"), (LinearAccesses{16, 16, 2}));
  EXPECT_EQ(accesses("n=97 k=64 out=fp32"), (LinearAccesses{16, 16, 1}));
  EXPECT_EQ(accesses("n=96 k=64 dact=gelu pre=@98"), (LinearAccesses{16, 16, 2}));
  EXPECT_EQ(accesses("n=96 k=64 dact=gelu post=@100"), (LinearAccesses{16, 16, 4}));
  EXPECT_EQ(accesses("n=96 k=64 align=4 bias"), (LinearAccesses{4, 4, 2}));
  EXPECT_EQ(accesses("n=96 k=64 align=8 bias params=fp32"), (LinearAccesses{8, 8, 2}));
}

TEST(LinearSpaceTest, EveryProblemHasDefaultsOnEveryArchitecture) {
  for (const char* const arch : {"sm_80", "sm_86", "sm_90", "sm_120"}) {
    const DeviceInfo device = *architecture_limits(arch);
    for (const std::int64_t m : {1, 197, 6304, 100352}) {
      for (const std::int64_t n : {1, 96, 768, 4304}) {
        for (const std::int64_t k : {3, 147, 768, 16384}) {
          LinearProblem p = LinearProblem::parse("linear bf16 m=2 n=2 k=2");
          p.m = m;
          p.n = p.out_row = n;
          p.k = p.x_row = p.w_row = k;
          const ParameterSpace space = testing_support::space_of(p, device);
          const auto defaults = testing_support::defaults_of(p, device);
          ASSERT_FALSE(defaults.empty()) << arch << ' ' << p.text();
          for (const Config& config : defaults) {
            EXPECT_EQ(space.explain(config), std::nullopt) << p.text() << ' ' << config.text();
          }
        }
      }
    }
  }
}

// Few results of many products are split, or shared out in the narrowest tiles; many are not.
TEST(LinearSpaceTest, DefaultsFillTheDevice) {
  const DeviceInfo h200 = testing_support::h200_device();
  DeviceInfo a100 = *architecture_limits("sm_80");
  a100.sm_count = 108;
  for (const GemmFamily* const family : linear_families()) {
    if (family->calls_library()) continue;           // it is asked what is good
    if (family == &linear_sm90_split_k()) continue;  // last of all
    const DeviceInfo& device = family == &linear_sm80() ? a100 : h200;
    const auto first = [&](const char* text) {
      const LinearProblem p = LinearProblem::parse(text);
      return family->defaults(*ProblemPtr(p), device, testing_support::space_of(p, device)).front();
    };
    const Config wide = first("linear bf16 m=6304 n=3072 k=768 bias act=gelu");
    EXPECT_EQ(wide.at("kSplits"), 1) << family->name();
    EXPECT_GE(wide.at("kBlockM") * wide.at("kBlockN"), 128 * 128);
    const Config narrow = first("linear bf16 m=64 n=768 k=3072 bias");
    if (family == &linear_sm80()) {
      EXPECT_GT(narrow.at("kSplits"), 1);
    } else {
      EXPECT_EQ(narrow.at("kBlockM") * narrow.at("kBlockN"), 64 * 32);
    }
    const Config row = first("linear bf16 m=1 n=1000 k=768 bias");
    EXPECT_EQ(row.at("kBlockM"), family == &linear_sm80() ? 16 : 64);
  }
}

// Problems that its kernels cannot do are for the other family, with a sentence.
TEST(LinearFamilyTest, Sm90ServesWhatTensorMapsDescribe) {
  const DeviceInfo h200 = testing_support::h200_device();
  const auto refusal = [&](const std::string& words, const DeviceInfo& device) {
    const LinearProblem p = LinearProblem::parse("linear bf16 m=64 " + words);
    return linear_sm90().refusal(*ProblemPtr(p), device).value_or("served");
  };
  for (const char* const words :
       {"n=64 k=64", "n=40 k=27 x=@32 w=@32", "n=64 k=64 norm=layer act=silu scale residual",
        "n=64 k=64 residual=@65 period=32", "n=64 k=64 residual period=32 rows=32+1",
        "n=64 k=66 x=@72 wt", "n=64 k=64 wt residual", "n=64 k=64 bias act=gelu aux",
        "n=64 k=64 residual=@68 out=fp32@76", "n=64 k=64 rows=32+1 out=fp32",
        "n=64 k=64 out=fp32 aux", "n=64 k=64 dact=gelu wt pre=@72 post", "n=64 k=64 factor=32"}) {
    EXPECT_EQ(refusal(words, h200), "served") << words;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"n=64 k=64 wt=@68", "begin at 16 bytes"},
      {"n=64 k=64 out=fp32@66", "begin at 16 bytes"},
      {"n=64 k=64 aux rows=32+1", "second result"},
      {"n=64 k=64 aux moments=32", "second result"},
      {"n=64 k=64 aux=@68", "begin at 16 bytes"},
      {"n=64 k=64 dact=gelu pre=@68", "begin at 16 bytes"},
      {"n=64 k=64 dact=gelu post=@68", "begin at 16 bytes"},
      {"n=64 k=64 align=8", "16-byte alignment, not 8"},
      {"n=64 k=66", "begin at 16 bytes"},
      {"n=64 k=64 w=@68", "begin at 16 bytes"},
      {"n=66 k=64", "multiple of 8"},
      {"n=66 k=64 out=@72", "multiple of 8"},
      {"n=64 k=64 residual=@66", "begin at 16 bytes"},
      {"n=64 k=64 rows=32+1 out=@68", "by 16 bytes"},
  };
  for (const auto& [words, reason] : refused) {
    EXPECT_NE(refusal(words, h200).find(reason), std::string::npos) << words;
  }
  // Many rows are not for the slower one, where both could.
  const auto sm80 = [&](const char* text, const DeviceInfo& device) {
    return linear_sm80().refusal(*parse_problem(text), device).value_or("served");
  };
  EXPECT_NE(sm80("linear bf16 m=6304 n=64 k=64", h200).find("sm90 serves"), std::string::npos);
  EXPECT_NE(sm80("linear bf16 m=6304 n=64 k=64 wt", h200).find("sm90 serves"), std::string::npos);
  EXPECT_EQ(sm80("linear bf16 m=6304 n=60 k=64 wt", h200), "served");
  EXPECT_EQ(sm80("linear bf16 m=197 n=64 k=64", h200), "served");
  EXPECT_EQ(sm80("linear bf16 m=6304 n=64 k=64", *architecture_limits("sm_89")), "served");
  for (const char* const arch : {"sm_80", "sm_89", "sm_100", "sm_120"}) {
    EXPECT_NE(refusal("n=64 k=64", *architecture_limits(arch)).find("9.0"), std::string::npos);
  }
  const ProblemPtr odd = parse_problem("linear bf16 m=64 n=66 k=64");
  const ParameterSpace space = linear().space(*odd, h200);
  const Config config = space.completed(Config::parse(
      "kBlockM=64 kBlockN=64 kFamily=1 kGroups=1 kLead=0 kPair=0 kSchedule=0 kSplits=1 kStages=8 "
      "kBlockK=0 kWarpM=0 kWarpN=0 kRaster=0"));
  EXPECT_NE(space.explain(config).value_or("").find("multiple of 8"), std::string::npos);
}

// Panels of 64 columns of w lie in a tile as a whole; rows of fp32 are not staged 64 columns wide.
TEST(LinearFamilyTest, TilesSuitTheWayThatWAndTheResultLie) {
  const DeviceInfo device = testing_support::h200_device();
  std::set<std::string> families;
  for (const char* const text : {"linear bf16 m=197 n=768 k=768 wt residual",
                                 "linear bf16 m=12608 n=3072 k=768 dact=gelu wt",
                                 "linear bf16 m=197 n=768 k=768 wt residual out=fp32"}) {
    const LinearProblem p = LinearProblem::parse(text);
    for (const Config& config : testing_support::space_of(p, device).enumerate()) {
      const std::string family = linear().family(config);
      families.insert(family);
      if (!family.starts_with("sm90")) continue;
      EXPECT_EQ(config.at("kBlockN") % 64, 0) << config.text();
      if (p.out == ElementType::kFp32) {
        EXPECT_EQ(config.at("kWidePanels"), 0) << config.text();
      }
    }
    EXPECT_TRUE(
        linear().family(testing_support::defaults_of(p, device).front()).starts_with("sm90"))
        << text;
  }
  EXPECT_EQ(families, (std::set<std::string>{"sm80", "sm90", "sm90_split_k"}));
}

// Blocks that a tile holds have defaults, however few the rows, and other families have none.
TEST(LinearFamilyTest, MomentsAreOfTheKernelsForNinePointZero) {
  const DeviceInfo device = testing_support::h200_device();
  for (std::int64_t columns = 32; columns <= 256; columns += 32) {
    for (const std::int64_t m : {1, 197, 6304}) {
      LinearProblem p = LinearProblem::parse("linear bf16 m=4 n=96 k=64 bias residual");
      p.m = m;
      p.n = p.out_row = p.residual_row = 4 * columns;
      p.moments = columns;
      const ProblemPtr problem = p;
      const ParameterSpace space = linear().space(*problem, device);
      const std::vector<Config> configs = linear().defaults(*problem, device, space);
      ASSERT_FALSE(configs.empty()) << problem->text();
      for (const Config& config : configs) {
        EXPECT_EQ(linear().family(config).substr(0, 4), "sm90") << problem->text();
        EXPECT_EQ(config.at("kBlockN") % columns, 0) << problem->text();
      }
    }
  }
  const ProblemPtr wide = parse_problem("linear bf16 m=4 n=576 k=64 moments=288");
  EXPECT_TRUE(linear().space(*wide, device).enumerate().empty());
  const ProblemPtr taken = parse_problem("linear bf16 m=4 n=64 k=64 norm=moments:32");
  DeviceInfo older = device;
  older.cc_major = 8;
  const ParameterSpace none = linear().space(*taken, older);
  EXPECT_TRUE(none.enumerate().empty());
  try {
    linear().defaults(*taken, older, none);
    ADD_FAILURE() << "a device without wgmma has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("wgmma is of compute capability 9.0"),
              std::string::npos);
  }
  EXPECT_FALSE(linear().space(*taken, device).enumerate().empty());
}

// In an H200's shared memory as many staging buffers as fit take none from anything else.
TEST(LinearFamilyTest, WhatIsStagedFitsBesideTheRing) {
  const DeviceInfo device = testing_support::h200_device();
  const LinearSm90 family;
  std::set<std::int64_t> buffers;
  for (const char* const text :
       {"linear bf16 m=23328 n=1152 k=1152 bias residual",
        "linear bf16 m=6304 n=768 k=768 norm=moments:32 bias scale residual moments=64",
        "linear fp16 m=195 n=320 k=768 bias residual rows=65+2",
        "linear bf16 m=6304 n=768 k=768 bias residual out=fp32",
        "linear bf16 m=6304 n=768 k=768 dact=gelu wt post",
        "linear bf16 m=6304 n=768 k=768 bias act=gelu residual aux"}) {
    const LinearProblem p = LinearProblem::parse(text);
    for (const Config& config : linear().space(*ProblemPtr(p), device).enumerate()) {
      if (linear().family(config) != "sm90") continue;
      const GemmSm90 shape = family.shape(p, config);
      const KernelLaunch launch = testing_support::plan_of(p, config, device, {1}).kernels.front();
      const bool is_staged = shape.schedule == GemmSm90::kPingPong || shape.stores() == 1;
      ASSERT_LE(launch.shape.shared_bytes, device.shared_per_block) << config.text();
      EXPECT_EQ(launch.maps[p.out_period > 0 ? 2 : 3].rows, is_staged ? 16 : shape.block_m)
          << config.text();
      if (is_staged) {
        buffers.insert(shape.store_buffers());
      } else {
        EXPECT_EQ(shape.store_buffers(), 2) << config.text();
      }
      for (const TensorMapSlot& map : launch.maps) {
        EXPECT_LE(2 * map.columns, 128) << config.text();
        EXPECT_EQ(2 * map.columns, map.swizzle);
        EXPECT_LE(map.at + 128, launch.map_bytes);
      }
    }
  }
  EXPECT_EQ(*buffers.begin(), 1);
  EXPECT_EQ(*buffers.rbegin(), 8);
}

// A judge must know of values that are rounded before they go into moments.
TEST(LinearFamilyTest, MomentsAreOfRoundedValues) {
  const auto out_moments = [](const char* text) {
    return linear_tensors(LinearProblem::parse(text))[kLinearOutMoments];
  };
  EXPECT_EQ(out_moments("linear fp16 m=4 n=64 k=64 moments=32").rounded_before, ElementType::kFp16);
  EXPECT_FALSE(out_moments("linear fp16 m=4 n=64 k=64").rounded_before);
  EXPECT_FALSE(
      linear_tensors(LinearProblem::parse("linear bf16 m=4 n=64 k=64 moments=32"))[kLinearOut]
          .rounded_before);
  const auto is_exact = [&](const std::string& words) {
    return out_moments(("linear bf16 m=4 n=64 k=64 moments=32" + words).c_str())
        .exact_from_whole_numbers;
  };
  for (const char* const sums : {"", " bias scale residual", " bias act=relu"}) {
    EXPECT_TRUE(is_exact(sums)) << sums;
  }
  for (const char* const others : {" act=gelu", " norm=layer", " norm=rms", " norm=moments:32"}) {
    EXPECT_FALSE(is_exact(others)) << others;
  }
}

// A config that was stored before there were families is of the first one.
TEST(LinearFamilyTest, ConfigsWithoutAFamilyAreOfTheFirst) {
  const DeviceInfo device = testing_support::h200_device();
  const ProblemPtr problem = parse_problem("linear bf16 m=197 n=768 k=3072 bias");
  const ParameterSpace space = linear().space(*problem, device);
  const Config old = Config::parse(
      "kBlockK=64 kBlockM=64 kBlockN=64 kRaster=1 kSplits=2 kStages=3 kWarpM=32 kWarpN=32");
  EXPECT_EQ(linear().family(old), "sm80");
  const Config whole = space.completed(old);
  EXPECT_EQ(space.explain(whole), std::nullopt);
  EXPECT_EQ(whole.at("kFamily"), 0);
  EXPECT_EQ(linear().source(*problem, whole), linear().source(*problem, old));
  EXPECT_FALSE(space.completed(Config{{"kFamily", 0}}).find("kWarpM"));
}

// Configs from before halves of tiles and a second kernel of sm90 went are named, never made.
TEST(LinearFamilyTest, SchedulesAndSplitsThatSm90HadAreOutsideItsSpace) {
  const DeviceInfo device = testing_support::h200_device();
  const ProblemPtr problem = parse_problem("linear bf16 m=6304 n=768 k=768 bias");
  const ParameterSpace space = linear().space(*problem, device);
  const auto stored = [&](const std::string& tunables) {
    return space.completed(Config::parse(
        "kBlockM=128 kBlockN=128 kFamily=1 kGroups=2 kLead=0 kPair=0 kStages=6 kBlockK=0 "
        "kWarpM=0 kWarpN=0 kRaster=0 " +
        tunables));
  };
  EXPECT_EQ(space.explain(stored("kSchedule=0 kSplits=1")), std::nullopt);
  const Config halves = stored("kSchedule=2 kSplits=1"), split = stored("kSchedule=0 kSplits=2");
  EXPECT_NE(space.explain(halves).value_or("").find("kSchedule"), std::string::npos);
  EXPECT_NE(space.explain(split).value_or("").find("kSplits = 2"), std::string::npos);
  const ConfigWords words = problem->op().words(*problem, halves);
  EXPECT_EQ(words.text, "sm90 128x128 2g s6");
  EXPECT_EQ(std::ranges::count(words.told, "kSchedule"), 0);
}

TEST(LinearFamilyTest, EachConfigIsOfAFamilyThatHasItsTunables) {
  const DeviceInfo device = testing_support::h200_device();
  const LinearProblem p = LinearProblem::parse("linear bf16 m=197 n=768 k=768 bias");
  std::set<std::string> families;
  for (const Config& config : testing_support::space_of(p, device).enumerate()) {
    const GemmFamily& family = gemm_family(linear_families(), config);
    families.emplace(family.name());
    std::set<std::string> own = {"kFamily"};
    for (const Parameter& parameter : family.tunables()) own.insert(parameter.name);
    for (const auto& [name, value] : config) EXPECT_TRUE(value == 0 || own.contains(name)) << name;
  }
  EXPECT_EQ(families, (std::set<std::string>{"sm80", "sm90", "sm90_split_k"}));
  Config unknown{{"kFamily", 99}};
  EXPECT_THROW(gemm_family(linear_families(), unknown), Error);
}

// Pairs of CTAs start together, no more of them than the device holds, and every box fits its map.
TEST(LinearPlanTest, Sm90LaunchesWholeClustersWithMapsOfWhatItReads) {
  const DeviceInfo device = testing_support::h200_device();
  const LinearProblem p =
      LinearProblem::parse("linear bf16 m=6304 n=768 k=768 bias scale residual");
  std::size_t seen = 0;
  for (const Config& config : testing_support::space_of(p, device).enumerate()) {
    if (&gemm_family(linear_families(), config) != &linear_sm90()) continue;
    ++seen;
    const LaunchPlan plan = testing_support::plan_of(p, config, device, {1});
    ASSERT_EQ(plan.kernels.size(), 1u);
    EXPECT_EQ(plan.scratch_bytes, 0);
    const KernelLaunch& gemm = plan.kernels.front();
    EXPECT_EQ(gemm.shape.grid[0] % (config.at("kPair") > 0 ? 2 : 1), 0u) << config.text();
    EXPECT_LE(gemm.shape.grid[0], 132u);
    EXPECT_TRUE(gemm.shape.waits_for_earlier);
    EXPECT_EQ(gemm.maps.size(), 4u) << config.text();
    for (const TensorMapSlot& map : gemm.maps) {
      EXPECT_EQ(map.rank, 2u);
      EXPECT_LE(map.rows, 256);
      EXPECT_EQ(map.rows % 8, 0);
      EXPECT_LE(2 * map.columns, 128);
      EXPECT_EQ(map.strides[0] % 8, 0);
    }
  }
  EXPECT_GT(seen, 100u);
}

// The kernel stores a second result through a map behind the others.
TEST(LinearPlanTest, ASecondResultHasATensorMapOfItsOwn) {
  const DeviceInfo device = testing_support::h200_device();
  const std::pair<std::string, std::optional<std::size_t>> cases[] = {
      {"", std::nullopt}, {" act=gelu aux", kLinearAux}, {" dact=gelu post", kLinearPost}};
  for (const auto& [words, tensor] : cases) {
    const LinearProblem p = LinearProblem::parse("linear bf16 m=6304 n=768 k=768" + words);
    std::size_t seen = 0;
    for (const Config& config : testing_support::space_of(p, device).enumerate()) {
      if (linear().family(config) != "sm90") continue;
      ++seen;
      const KernelLaunch launch = testing_support::plan_of(p, config, device, {1}).kernels.front();
      const auto second = std::ranges::find_if(launch.maps, [](const TensorMapSlot& map) {
        return map.tensor == kLinearAux || map.tensor == kLinearPost;
      });
      ASSERT_EQ(second != launch.maps.end(), tensor.has_value())
          << p.text() << " " << config.text();
      if (!tensor) continue;
      EXPECT_EQ(second->tensor, *tensor);
      EXPECT_EQ(second->at + 128, launch.map_bytes);
    }
    EXPECT_GT(seen, 10u);
  }
}

// A cluster to a tile, for layers whose tiles leave SMs idle.
TEST(LinearPlanTest, Sm90PartsLaunchAClusterForEachTileWhereTilesAreFew) {
  const DeviceInfo device = testing_support::h200_device();
  const GemmFamily& parts = linear_sm90_split_k();
  const auto configs = [&](const LinearProblem& p) {
    std::vector<Config> found;
    for (Config& config : testing_support::space_of(p, device).enumerate()) {
      if (&gemm_family(linear_families(), config) == &parts) found.push_back(std::move(config));
    }
    return found;
  };
  const LinearProblem p = LinearProblem::parse("linear bf16 m=197 n=768 k=3072 bias residual");
  std::set<std::int64_t> stages;
  for (const Config& config : configs(p)) {
    const LaunchPlan plan = testing_support::plan_of(p, config, device, {1});
    ASSERT_EQ(plan.kernels.size(), 1u);
    EXPECT_EQ(plan.scratch_bytes, 0);
    const KernelLaunch& kernel = plan.kernels.front();
    const std::int64_t columns = config.at("kBlockN"), across = (768 + columns - 1) / columns;
    EXPECT_EQ(kernel.shape.grid[0], 4 * across * config.at("kSplits")) << config.text();
    EXPECT_LE(kernel.shape.grid[0], 264u);
    EXPECT_LE(kernel.shape.shared_bytes, device.shared_per_block);
    EXPECT_EQ(kernel.maps.size(), 4u);
    EXPECT_TRUE(kernel.shape.waits_for_earlier);
    stages.insert(config.at("kStages"));
  }
  EXPECT_GT(stages.size(), 2u);
  const std::vector<Config> first =
      parts.defaults(*ProblemPtr(p), device, testing_support::space_of(p, device));
  ASSERT_EQ(first.size(), 2u);
  const auto words = [&](const Config& config) {
    return linear().words(*ProblemPtr(p), config).text;
  };
  EXPECT_EQ(words(first[0]), "sm90_split_k 64x64 2p s8");  // 4 x 12 tiles, 96 CTAs
  EXPECT_EQ(words(first[1]), "sm90_split_k 64x96 4p s8");  // 4 x 8 tiles, 128 CTAs
  EXPECT_TRUE(configs(LinearProblem::parse("linear bf16 m=6304 n=3072 k=768 bias")).empty());
  EXPECT_TRUE(configs(LinearProblem::parse("linear bf16 m=197 n=768 k=192 bias")).empty());
  for (const Config& config : configs(LinearProblem::parse("linear bf16 m=64 n=64 k=448"))) {
    EXPECT_EQ(config.at("kSplits"), 2) << "seven steps are not four parts of two";
  }
}

// One problem of each class that the trials of an H200 tell apart.
TEST(LinearPlanTest, DefaultsHaveTheFormThatTrialsSpeakFor) {
  const std::pair<const char*, const char*> cases[] = {
      {"linear bf16 m=25216 n=3072 k=768 bias act=gelu", "sm90 ping 128x192 2g s4 wide"},
      {"linear bf16 m=12608 n=3072 k=768 wt", "sm90 ping 128x192 2g s4 wide"},
      {"linear bf16 m=6304 n=768 k=3072 bias residual", "sm90 coop 192x192 3g s4"},
      {"linear bf16 m=6272 n=384 k=1536 bias residual", "sm90 coop 192x96 3g s5"},
      {"linear bf16 m=100352 n=384 k=96 bias act=gelu", "sm90 coop 192x192 3g s3 wide"},
      {"linear bf16 m=1576 n=768 k=3072 bias residual", "sm90 coop 64x160 1g s7"},
      {"linear bf16 m=197 n=768 k=768 bias residual", "sm90 coop 64x32 1g s8"},
      {"linear bf16 m=197 n=3072 k=768 bias act=gelu", "sm90 coop 64x96 1g s8 pair_m"},
      {"linear bf16 m=197 n=768 k=3072 bias residual", "sm90_split_k 64x64 2p s8"},
  };
  for (const auto& [text, words] : cases) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = default_config(*problem, testing_support::h200_device());
    EXPECT_EQ(linear().words(*problem, config).text, words) << text;
  }
}

TEST(LinearPlanTest, SplitsAreWholeStepsAndCoverEveryColumn) {
  const DeviceInfo device = testing_support::h200_device();
  const LinearProblem p = LinearProblem::parse("linear bf16 m=197 n=768 k=3001 bias");
  std::set<std::int64_t> seen;
  for (const Config& config : testing_support::space_of(p, device).enumerate()) {
    if (&gemm_family(linear_families(), config) != &linear_sm80()) continue;
    const LinearSm80Shape shape(p, config);
    const std::int64_t splits = shape.splits, columns = shape.split_columns();
    if (!seen.insert(splits * 1000 + config.at("kBlockK")).second) continue;
    EXPECT_EQ(columns % config.at("kBlockK"), 0);
    EXPECT_GE(columns * splits, p.k);
    EXPECT_LT(columns * (splits - 1), p.k);
    const LaunchPlan plan = testing_support::plan_of(p, config, device, {});
    EXPECT_EQ(plan.kernels.size(), splits > 1 ? 2u : 1u);
    EXPECT_EQ(plan.scratch_bytes, splits > 1 ? 4 * splits * 197 * 768 : 0);
    EXPECT_EQ(plan.kernels[0].shape.grid[0], shape.tiles() * splits);
    LinearParams params;
    std::memcpy(&params, plan.kernels[0].params.data(), sizeof(params));
    EXPECT_EQ(params.split_columns, columns);
  }
  EXPECT_GT(seen.size(), 6u);
}

// Smaller problems are for the same kernel: compiled alike.
TEST(LinearJudgeTest, EdgeProblemsAskForTheSameKernel) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text :
       {"linear bf16 m=6304 n=3072 k=768 bias act=gelu",
        "linear bf16 m=6304 n=1000 k=588 x=@592 w=@600 residual=@1004 bias",
        "linear fp16 m=777 n=250 k=83 wt=@252 aux=@260 align=8",
        "linear bf16 m=6304 n=768 k=768 dact=gelu wt pre=@776 post",
        "linear bf16 m=6304 n=768 k=768 bias scale factor=197 residual out=fp32",
        "linear bf16 m=392 n=768 k=3072 bias residual period=196 rows=196+1",
        "linear fp16 m=64 n=33 k=27 scale"}) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = default_config(*problem, device);
    const auto cases = linear().cases(*problem, config, device);
    std::set<std::string> texts;
    for (const JudgeCase& each : cases) {
      texts.insert(each.problem->text());
      EXPECT_EQ(parse_problem(each.problem->text())->text(), each.problem->text());
      const LinearProblem& edge = linear_of(*each.problem);
      if (edge.m == 1) continue;  // a row's stride is of no account
      EXPECT_EQ(linear_accesses(edge), linear_accesses(linear_of(*problem)))
          << each.problem->text();
      EXPECT_EQ(linear().kernel_class(*each.problem), linear().kernel_class(*problem))
          << each.problem->text();
    }
    EXPECT_GE(texts.size(), 2u) << text;
  }
}

// Whole inputs: their sums are known exactly, and bf16 has the results.
TEST(LinearJudgeTest, WholeInputsAreRoundedAndOthersAreNot) {
  const ProblemPtr problem = parse_problem("linear bf16 m=64 n=64 k=768 bias scale residual");
  for (const Fill& fill : linear().inputs(*problem, "whole")) EXPECT_EQ(fill.unit, 1);
  for (const Fill& fill : linear().inputs(*problem, kNormalDraw)) EXPECT_EQ(fill.unit, 0);
  EXPECT_THROW(linear().inputs(*problem, "extreme"), Error);
}

}  // namespace
}  // namespace vitune::linear_test
