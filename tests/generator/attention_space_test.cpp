// tests/generator/attention_space_test.cpp -- The space of the attention kernels and their
// defaults.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "catalogue/problem_set.h"
#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/generator/asked.h"

namespace vitune {
namespace {

DeviceInfo device_like(const char* arch, int sms) {
  DeviceInfo device = *architecture_limits(arch);
  device.sm_count = sms;
  return device;
}

DeviceInfo h200() { return device_like("sm_90", 132); }

std::vector<NamedProblem> benchmark_problems() {
  return load_problem_file(std::filesystem::path(VITUNE_SOURCE_DIR) / "data/bench_problems.json");
}

AttentionProblem problem(const char* text) { return AttentionProblem::parse(text); }

// Every combination of values, without any of the shortcuts of enumerate().
std::set<Config> brute_force(const FamilySpace& space) {
  std::vector<Config> all = {Config()};
  for (const Parameter& parameter : space.parameters) {
    std::vector<Config> longer;
    for (const Config& prefix : all) {
      for (std::int64_t value : parameter.values) {
        longer.push_back(prefix);
        longer.back().set(parameter.name, value);
      }
    }
    all = std::move(longer);
  }
  std::set<Config> valid;
  for (const Config& config : all) {
    const bool obeys = std::ranges::all_of(
        space.constraints, [&](const Constraint& rule) { return !rule.violation(config); });
    if (obeys) valid.insert(config);
  }
  return valid;
}

TEST(AttentionSpaceTest, EnumeratesWhatBruteForceFinds) {
  // Short, narrow problems, of few rows and of many, and the first two and the last value of each
  // tunable keep the product of all values small enough to walk.
  for (const char* text : {"bf16 b=64 h=3 nq=17 nk=17 d=16 layout=packed",
                           "bf16 b=200 h=3 nq=129 nk=129 d=16 layout=packed"}) {
    const ParameterSpace whole = attention_space(problem(text), h200());
    std::size_t all = 0;
    for (FamilySpace family : whole.families()) {
      ASSERT_EQ(family.refusal, std::nullopt) << family.name;
      for (Parameter& parameter : family.parameters) {
        if (parameter.values.size() > 3) {
          parameter.values.erase(parameter.values.begin() + 2, parameter.values.end() - 1);
        }
      }
      const ParameterSpace space({family});
      ASSERT_LT(space.cartesian_size(), 1000000u) << family.name;

      const std::vector<Config> found = space.enumerate();

      EXPECT_EQ(std::set<Config>(found.begin(), found.end()), brute_force(family)) << family.name;
      all += found.size();
    }
    EXPECT_GE(all, 20u) << text;
  }
}

TEST(AttentionSpaceTest, HasTheDefaultOfEveryBenchmarkProblemOnEveryArchitecture) {
  for (const std::string& arch : supported_architectures()) {
    const DeviceInfo device = device_like(arch.c_str(), 100);
    for (const NamedProblem& named : benchmark_problems()) {
      const Config config = default_attention_config(attention_of(*named.problem), device);
      EXPECT_EQ(attention_space(attention_of(*named.problem), device).explain(config), std::nullopt)
          << arch << ' ' << named.name << ' ' << config.text();
    }
  }
}

TEST(AttentionSpaceTest, IsLargeEnoughToMatterAndSmallEnoughToSweep) {
  for (const NamedProblem& named : benchmark_problems()) {
    const std::size_t size =
        attention_space(attention_of(*named.problem), h200()).enumerate().size();
    EXPECT_GE(size, 100u) << named.name;
    EXPECT_LE(size, 1500u) << named.name;
  }
}

TEST(AttentionSpaceTest, HasADefaultForEveryHeadSizeAndTinyProblems) {
  for (std::int64_t d = 8; d <= 128; d += 8) {
    for (const char* shape :
         {"b=1 h=1 nq=1 nk=1", "b=2 h=3 nq=5 nk=1000", "b=1 h=1 nq=4096 nk=3"}) {
      const AttentionProblem asked =
          problem(("fp16 " + std::string(shape) + " d=" + std::to_string(d) + " layout=bnhd causal")
                      .c_str());
      EXPECT_NO_THROW(default_attention_config(asked, device_like("sm_86", 80))) << asked.text();
    }
  }
}

TEST(AttentionSpaceTest, CopiesByTensorMapsWhereTheyCanDescribeTheTensors) {
  const auto explained = [](const char* text, const char* changes) {
    const AttentionProblem asked = problem(text);
    Config config = Config::parse(
        "kPersistent=1 kConstantKeys=1 kQueryInRegisters=0 kRowTiles=1 kHeadsPerCta=1 kRowSplit=1 "
        "kMinCtas=1 kBiasInRegisters=0 kValuesFirst=0 kSpareRows=0 kResident=1 kSwizzle=128 "
        "kBlockN=200 kStages=2 kWarps=12 kKeySplit=1 kEvenItems=0");
    for (const auto& [name, value] : Config::parse(changes)) config.set(name, value);
    return attention_space(asked, h200()).explain(config).value_or("fine");
  };
  using testing::HasSubstr;
  const char* plain = "bf16 b=32 h=12 n=197 d=64 layout=packed";
  EXPECT_EQ(explained(plain, "kProducer=2"), "fine");
  EXPECT_EQ(explained(plain, "kProducer=2 kSpareRows=8"), "fine");
  EXPECT_THAT(explained(plain, "kProducer=1"), HasSubstr("kProducer = 1 is not one of 2"));
  EXPECT_THAT(explained(plain, "kProducer=1 kSpareRows=8"), HasSubstr("kProducer"));
  const char* const unmapped[] = {
      "bf16 b=32 h=12 n=197 d=64 layout=bnhd bias=fp32:1x12x197x197",
      "bf16 b=32 h=12 n=197 d=64 layout=bnhd mask=bool:1x1x197x197",
      "bf16 b=32 h=12 n=197 d=64 layout=packed align=8",
      "bf16 b=32 h=12 n=197 d=64 q=bnhd k=@0,64,768 v=@0,64,768 o=bnhd",
  };
  for (const char* text : unmapped) {
    EXPECT_THAT(explained(text, "kProducer=2"), HasSubstr("kProducer = 2 is not one of 1")) << text;
    EXPECT_EQ(explained(text, "kProducer=1"), "fine") << text;
  }
  // A bias of 16 bits is brought by copying warps, and its tiles take shared memory.
  const char* biased = "bf16 b=32 h=12 n=197 d=64 layout=bnhd bias=bf16:1x12x197x197";
  EXPECT_THAT(explained(biased, "kProducer=2"), HasSubstr("shared memory"));
  EXPECT_EQ(explained(biased, "kProducer=2 kResident=0 kBlockN=112 kSpareRows=8"), "fine");
  EXPECT_THAT(explained(biased, "kProducer=1"), HasSubstr("kProducer = 1 is not one of 2"));
  // Copies that end in any order: a warpgroup has to see every phase of its barriers.
  EXPECT_THAT(explained("bf16 b=32 h=12 nq=77 nk=197 d=64 layout=bnhd", "kProducer=2"),
              HasSubstr("3 warpgroups for 2 blocks of rows"));
  // Nine rows over are a block of their own.
  const char* nine = "bf16 b=32 h=12 nq=201 nk=197 d=64 layout=bnhd";
  EXPECT_THAT(explained(nine, "kProducer=2 kSpareRows=8"), HasSubstr("leave no more than 8 over"));
}

TEST(AttentionSpaceTest, HasStepsOfUpTo256KeysForTwoWarpgroupsBesideCopyingWarps) {
  const AttentionProblem asked = problem("bf16 b=128 h=4 n=256 d=64 layout=packed");
  Config config = default_attention_config(asked, h200());
  EXPECT_EQ(config.at("kBlockN"), 256);
  EXPECT_EQ(config.at("kResident"), 0);
  const ParameterSpace space = attention_space(asked, h200());
  EXPECT_EQ(space.explain(config), std::nullopt);
  config.set("kWarps", 12);
  EXPECT_THAT(space.explain(config).value_or("fine"), testing::HasSubstr("too few registers"));
  // Elsewhere too few keys, or registers, are there.
  EXPECT_LT(default_attention_config(problem("bf16 b=128 h=4 n=257 d=64 layout=packed"), h200())
                .at("kBlockN"),
            256);
  EXPECT_LT(default_attention_config(asked, device_like("sm_86", 80)).at("kBlockN"), 256);
}

// docs/lab/2026-11-28-narrower-spaces.md
TEST(AttentionSpaceTest, LeavesManyRowsToTensorMapsOnDevicesThatHaveThem) {
  struct Case {
    const char* problem;
    const char* arch;
    bool has_mma, has_wgmma;  // without copying warps, and for a constant count of keys
  };
  const Case cases[] = {
      {"bf16 b=32 h=12 n=197 d=64 layout=packed", "sm_90", false, false},
      {"bf16 b=8 h=12 n=197 d=64 layout=packed", "sm_90", false, true},
      {"bf16 b=2 h=12 n=197 d=64 layout=packed", "sm_90", true, true},
      {"bf16 b=256 h=12 n=50 d=64 layout=packed", "sm_90", false, true},
      {"bf16 b=256 h=12 n=50 d=48 layout=packed", "sm_90", true, true},
      {"bf16 b=256 h=12 nq=1 nk=197 d=64 layout=bnhd", "sm_90", true, false},
      {"bf16 b=32 h=12 n=197 d=64 layout=bnhd mask=bool:1x1x197x197", "sm_90", true, true},
      {"bf16 b=32 h=12 n=197 d=64 layout=packed", "sm_80", true, false},
  };
  for (const Case& c : cases) {
    const std::vector<Config> all =
        attention_space(problem(c.problem), device_like(c.arch, 132)).enumerate();
    const auto has = [&](auto&& is_one) { return std::ranges::any_of(all, is_one); };
    const auto is_mma = [](const Config& config) { return config.at("kSwizzle") == 0; };
    EXPECT_TRUE(has(is_mma)) << c.problem << ": nothing for drivers without tensor maps";
    EXPECT_EQ(has([&](const Config& config) {
                return is_mma(config) && config.at("kConstantKeys") == 1;
              }),
              c.has_mma)
        << c.problem << ' ' << c.arch;
    EXPECT_EQ(
        has([&](const Config& config) { return !is_mma(config) && config.at("kProducer") == 0; }),
        c.has_wgmma)
        << c.problem << ' ' << c.arch;
    EXPECT_EQ(has([](const Config& config) { return config.at("kRowTiles") == 2; }),
              std::string_view(c.arch) != "sm_90")
        << c.problem << ' ' << c.arch;
  }
}

TEST(AttentionSpaceTest, ExplainsABrokenRuleWithItsFigures) {
  const AttentionProblem asked = problem("bf16 b=4 h=16 nq=4096 nk=4096 d=128 layout=packed");
  const ParameterSpace space = attention_space(asked, h200());
  Config config = default_attention_config(asked, h200());
  config.set("kResident", 1);
  config.set("kProducer", 0);
  config.set("kPersistent", 0);
  config.set("kSwizzle", 0);
  config.set("kSpareRows", 0);
  config.set("kBlockN", 64);
  config.set("kWarps", 8);
  config.set("kQueryInRegisters", 1);

  const std::optional<std::string> why = space.explain(config);

  ASSERT_TRUE(why);
  EXPECT_NE(why->find("shared memory"), std::string::npos) << *why;
  EXPECT_NE(why->find("232448"), std::string::npos) << *why;
}

TEST(AttentionSpaceTest, RefusesADeviceThatNothingFitsWithAReason) {
  DeviceInfo tiny = h200();
  tiny.shared_per_block = 2048;

  try {
    default_attention_config(problem("bf16 b=1 h=1 nq=64 nk=64 d=128 layout=packed"), tiny);
    FAIL() << "a device with 2 KiB of shared memory was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("2048"), std::string::npos) << error.what();
  }
}

struct BiasCase {
  const char* text;
  int bias, vector;
};

// A config of a foreign row may hold anything: what cuts no keys says nothing of another width.
TEST(AttentionCarriedTest, AWidthThatNoKernelHasIsKeptForTheSpaceToRefuse) {
  const AttentionProblem from = problem("bf16 b=8 h=12 n=197 d=64");
  const AttentionProblem to = problem("bf16 b=8 h=12 n=257 d=64");
  const ParameterSpace space = attention_space(to, h200());
  Config config = default_attention_config(from, h200());
  for (const std::int64_t width : {0, -8}) {
    config.set("kBlockN", width);
    EXPECT_EQ(carried_steps(config, from, space), 0);
    const Config carried = carried_attention_config(config, from, to, space);
    EXPECT_EQ(carried.at("kBlockN"), width);
    EXPECT_TRUE(space.explain(carried));
  }
}

TEST(AttentionFactsTest, TakeTheWidestBiasLoadThatStridesAndKeysAllow) {
  const BiasCase cases[] = {
      {"bf16 b=2 h=3 nq=49 nk=49 d=32 layout=bnhd", 0, 0},
      {"bf16 b=2 h=3 nq=49 nk=49 d=32 layout=bnhd bias=bf16:1x3x49x49", 3, 1},
      {"bf16 b=2 h=3 nq=50 nk=50 d=32 layout=bnhd bias=fp16:1x3x50x50", 2, 2},
      {"bf16 b=2 h=3 nq=52 nk=52 d=32 layout=bnhd bias=fp32:1x3x52x52", 1, 4},
      {"bf16 b=2 h=3 nq=52 nk=52 d=32 layout=bnhd bias=fp32:1x3x52x52 align=8", 1, 2},
      {"bf16 b=2 h=3 nq=52 nk=52 d=32 layout=bnhd bias=bf16:1x3x52x52@0,2706,52,1", 3, 2},
      {"bf16 b=2 h=3 nq=52 nk=52 d=32 layout=bnhd bias=bf16:1x3x52x52@0,2704,1,52", 3, 0},
      {"bf16 b=2 h=16 nq=70 nk=300 d=72 layout=bnhd bias=bf16:2x1x1x300", 3, 4},
  };
  for (const BiasCase& c : cases) {
    const AttentionFacts facts = attention_facts(problem(c.text));
    EXPECT_EQ(facts.bias, c.bias) << c.text;
    EXPECT_EQ(facts.bias_vector, c.vector) << c.text;
  }
}

TEST(AttentionFactsTest, SayHowRowsOfTheBiasLie) {
  struct Case {
    const char* text;
    bool aligned, one_row, whole_rows;
  };
  const Case cases[] = {
      {"bf16 b=2 h=3 n=49 d=32 layout=bnhd bias=bf16:1x3x49x49", false, false, true},
      {"bf16 b=2 h=3 n=64 d=32 layout=bnhd bias=bf16:1x3x64x64", true, false, true},
      {"bf16 b=2 h=3 n=64 d=32 layout=bnhd bias=bf16:1x3x64x64 align=8", false, false, true},
      {"bf16 b=2 h=3 n=52 d=32 layout=bnhd bias=bf16:1x3x52x52@0,3328,64,1", true, false, false},
      {"bf16 b=2 h=3 nq=9 nk=257 d=32 layout=bnhd bias=bf16:1x3x9x257", false, false, false},
      {"bf16 b=2 h=3 nq=9 nk=8192 d=32 layout=bnhd bias=bf16:2x1x1x8192", true, true, true},
      {"bf16 b=2 h=3 nq=9 nk=8200 d=32 layout=bnhd bias=bf16:2x1x1x8200", true, true, false},
  };
  for (const Case& c : cases) {
    const AttentionFacts facts = attention_facts(problem(c.text));
    EXPECT_EQ(facts.bias_aligned, c.aligned) << c.text;
    EXPECT_EQ(facts.bias_one_row, c.one_row) << c.text;
    EXPECT_EQ(facts.bias_whole_rows, c.whole_rows) << c.text;
  }
}

TEST(AttentionShapeTest, SaysWhichTilesOfTheBiasComeInBoxes) {
  struct Case {
    const char* text;
    const char* changes;
    std::int64_t rows, keys;  // of a box, 0 for none
  };
  const char* aligned = "bf16 b=8 h=3 nq=197 nk=264 d=64 layout=bnhd bias=bf16:1x3x197x264";
  const char* windows = "bf16 b=8 h=3 n=144 d=64 layout=bnhd bias=bf16:1x3x144x144";
  const Case cases[] = {
      {aligned, "", 64, 136},
      {aligned, "kBlockN=136", 64, 136},
      {aligned, "kBlockN=256", 0, 0},
      {aligned, "kSpareRows=8", 8, 136},
      {aligned, "kResident=1", 64, 136},
      {aligned, "kResident=1 kSpareRows=8", 0, 0},
      {aligned, "kProducer=1", 0, 0},
      {windows, "kBlockN=80", 64, 88},
      {windows, "kBlockN=144 kResident=1", 0, 0},
      {windows, "kBlockN=144 kBiasInRegisters=1", 0, 0},
      {"bf16 b=8 h=3 n=261 d=64 layout=bnhd bias=bf16:1x3x261x261", "", 0, 0},
      {"bf16 b=8 h=3 nq=70 nk=264 d=64 layout=bnhd bias=bf16:8x1x1x264", "", 0, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.text) + " | " + c.changes);
    Config config = Config::parse("kProducer=2 kSwizzle=128 kWarps=8 kBlockN=128 kStages=2");
    for (const auto& [name, value] : Config::parse(c.changes)) config.set(name, value);
    const AttentionShape shape(problem(c.text), config);
    EXPECT_EQ(shape.bias_boxes(), c.keys > 0);
    if (c.keys == 0) continue;
    EXPECT_EQ(shape.bias_box_rows(), c.rows);
    EXPECT_EQ(shape.bias_box_keys(), c.keys);
  }
}

TEST(AttentionLaunchTest, CoversEveryRowOfEveryHeadOnce) {
  const DeviceInfo device = h200();
  for (const NamedProblem& named : benchmark_problems()) {
    const AttentionProblem& problem = attention_of(*named.problem);
    const std::int64_t heads = problem.batch * problem.heads;
    for (const Config& config : attention_space(problem, device).enumerate()) {
      const AttentionShape shape(problem, config);
      const LaunchShape launch = attention_launch_shape(problem, config, device, 2);
      const AttentionParams params = attention_params(problem, config, {}, launch);
      const std::int64_t rows_per_item = shape.resident ? shape.block_rows() : shape.block_m();
      ASSERT_LE(shape.nq - shape.block_rows(), shape.swap_ab_rows);
      ASSERT_GE(params.items * rows_per_item * shape.heads_per_cta, heads * shape.block_rows())
          << named.name << ' ' << config.text();
      ASSERT_LE(launch.grid[0], static_cast<std::uint32_t>(params.items));
      ASSERT_TRUE(shape.persistent || launch.grid[0] == static_cast<std::uint32_t>(params.items));
      ASSERT_EQ(launch.block[0], static_cast<std::uint32_t>(shape.threads()));
      ASSERT_LE(launch.shared_bytes, device.shared_per_block);
    }
  }
}

TEST(AttentionLaunchTest, DividesByWhatItemsAreMadeOf) {
  const AttentionProblem asked =
      problem("bf16 b=6 h=8 hkv=2 nq=200 nk=20 d=64 bias=fp32:3x8x200x20 mask=bool:2x1x1x20");
  const Config config = default_attention_config(asked, h200());
  const LaunchShape launch = attention_launch_shape(asked, config, h200(), 1);
  const AttentionParams params = attention_params(asked, config, {}, launch);
  const AttentionShape shape(asked, config);

  EXPECT_EQ(params.by_heads.value, 8u);
  EXPECT_EQ(params.by_heads_per_kv.value, 4u);
  EXPECT_EQ(params.by_bias_batches.value, 3u);
  EXPECT_EQ(params.by_mask_batches.value, 2u);
  EXPECT_EQ(params.by_items.value, ceil_div(shape.block_rows(), shape.block_m()));
}

TEST(AttentionLaunchTest, PassesStridesScaleAndSharedHeadsOn) {
  const AttentionProblem asked = problem(
      "fp16 b=6 h=8 hkv=2 nq=10 nk=20 d=40 layout=bnhd scale=0.5 bias=fp32:3x8x10x20 "
      "mask=bool:1x1x1x20");

  const Config config = default_attention_config(asked, h200());
  const AttentionParams params = attention_params(asked, config, {.q = 4096, .bias = 256},
                                                  attention_launch_shape(asked, config, h200(), 1));

  EXPECT_EQ(params.q, reinterpret_cast<const void*>(4096));
  EXPECT_EQ(params.bias, reinterpret_cast<const void*>(256));
  EXPECT_EQ(params.heads_per_kv, 4);
  EXPECT_EQ(params.scale, 0.5f);
  EXPECT_EQ(params.q_view.row, 8 * 40);
  EXPECT_EQ(params.k_view.row, 2 * 40);
  EXPECT_EQ(params.bias_view.batches, 3);
  EXPECT_EQ(params.bias_view.batch, 8 * 10 * 20);
  EXPECT_EQ(params.mask_view.row, 0);
  EXPECT_EQ(params.mask_view.key, 1);
}

TEST(AttentionPruneTest, GivesAReasonForSpillsAndForWhatDoesNotFit) {
  const AttentionProblem asked = problem("bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed");
  const Config config = default_attention_config(asked, h200());

  const auto spilling =
      testing_support::pruned(asked, config, {.registers = 96, .spill_bytes = 400}, h200());
  const auto fitting =
      testing_support::pruned(asked, config, {.registers = 96, .spill_bytes = 0}, h200());
  DeviceInfo small = h200();
  small.registers_per_sm = 8192;
  const auto starved =
      testing_support::pruned(asked, config, {.registers = 96, .spill_bytes = 0}, small);

  ASSERT_TRUE(spilling);
  EXPECT_NE(spilling->find("spills 400 bytes"), std::string::npos) << *spilling;
  EXPECT_EQ(fitting, std::nullopt);
  ASSERT_TRUE(starved);
  EXPECT_NE(starved->find("does not fit on an SM"), std::string::npos) << *starved;
}

}  // namespace
}  // namespace vitune
