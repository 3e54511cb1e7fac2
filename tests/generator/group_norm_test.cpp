// tests/generator/group_norm_test.cpp -- Group norms: texts, refusals, tensors, spaces and plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "core/checked.h"
#include "core/error.h"
#include "generator/group_norm/kernel_spec.h"
#include "generator/group_norm/operator.h"
#include "generator/source.h"
#include "templates/group_norm/params.cuh"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune::group_norm_test {
namespace {

using testing::HasSubstr;

// Small, large, odd: every layout, type and kind of vector.
constexpr const char* kProblems[] = {
    "group_norm bf16 n=1 c=512 l=16 g=8 weight bias mish",
    "group_norm bf16 n=1 c=512 l=16 g=8 nhwc weight bias mish",
    "group_norm bf16 n=1 c=2048 l=4 g=8 weight bias mish",
    "group_norm bf16 n=1 c=2048 l=4 g=8 nhwc weight bias mish",
    "group_norm bf16 n=256 c=512 l=16 g=8 weight bias mish",
    "group_norm bf16 n=256 c=512 l=16 g=8 nhwc weight bias mish",
    "group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu",
    "group_norm bf16 n=2 c=320 l=4096 g=32 nhwc weight bias silu",
    "group_norm bf16 n=2 c=1280 l=256 g=32 weight bias silu",
    "group_norm bf16 n=2 c=1280 l=256 g=32 nhwc weight bias silu",
    "group_norm bf16 n=1 c=512 l=65536 g=32 weight bias silu",
    "group_norm bf16 n=1 c=512 l=65536 g=32 nhwc weight bias silu",
    "group_norm fp32 n=1 c=1 l=1 g=1",
    "group_norm fp16 n=3 c=21 l=35 g=7 nhwc bias",
    "group_norm fp32 n=1 c=5000 l=3 g=1 nhwc weight",
    "group_norm fp32 n=1 c=100001 l=7 g=1 nhwc weight",
    "group_norm bf16 n=1 c=1 l=2147483647 g=1",
    "group_norm bf16 n=7 c=96 l=50 g=96 nhwc weight bias",
    "group_norm fp16 n=2 c=48 l=25 g=3 weight bias params=fp32 silu eps=0.001 align=4",
};

std::string refusal(const std::string& text, ErrorCode code) {
  try {
    GroupNormProblem::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text;
    return error.what();
  }
  ADD_FAILURE() << text << " is not refused";
  return {};
}

TEST(GroupNormTest, TextsAreCanonical) {
  for (const char* const text : kProblems) {
    EXPECT_EQ(GroupNormProblem::parse(text).text(), text);
  }
  const auto canonical = [](const char* text) { return GroupNormProblem::parse(text).text(); };
  EXPECT_EQ(canonical("silu g=2 l=9 c=4 n=1 bf16 eps=1e-5 align=16 params=fp32"),
            "group_norm bf16 n=1 c=4 l=9 g=2 silu");
  // The same memory in both layouts.
  EXPECT_EQ(canonical("bf16 n=2 c=4 l=1 g=2 nhwc"), "group_norm bf16 n=2 c=4 l=1 g=2");
  EXPECT_EQ(canonical("bf16 n=2 c=1 l=4 g=1 nhwc"), "group_norm bf16 n=2 c=1 l=4 g=1");
}

TEST(GroupNormTest, RefusalsSayWhatToDo) {
  const struct {
    const char* text;
    ErrorCode code;
    const char* sentence;
  } kCases[] = {
      {"bf16 c=4 l=4 g=2", ErrorCode::kUsage, "n= (images) is missing"},
      {"bf16 n=1 c=4 l=4", ErrorCode::kUsage, "g= (groups of channels) is missing"},
      {"n=1 c=4 l=4 g=2", ErrorCode::kUsage, "the type is missing"},
      {"bf16 fp16 n=1 c=4 l=4 g=2", ErrorCode::kUsage, "two types"},
      {"bf16 n=1 c=4 l=4 g=2 silu mish", ErrorCode::kUsage, "silu and mish"},
      {"bf16 n=1 c=4 l=4 g=2 gelu", ErrorCode::kUsage, "unknown word 'gelu'"},
      {"bf16 n=1 c=4 l=4 g=3", ErrorCode::kUsage, "g=3 does not divide c=4"},
      {"bf16 n=0 c=4 l=4 g=2", ErrorCode::kUsage, "n=0: 1 is the least"},
      {"bf16 n=1 c=4 l=-1 g=2", ErrorCode::kUsage, "l=-1: 1 is the least"},
      {"bf16 n=1 c=4 l=4 g=2 eps=0", ErrorCode::kUsage, "eps=0"},
      {"bf16 n=1 c=4 l=4 g=2 align=3", ErrorCode::kUsage, "align=3: use 2, 4, 8 or 16"},
      {"fp32 n=1 c=4 l=4 g=2 align=2", ErrorCode::kUsage, "multiples of 4 bytes"},
      {"bf16 n=1 c=4 l=4 g=2 bias params=fp32 align=2", ErrorCode::kUsage, "multiples of 4"},
      {"bf16 n=1 c=4 l=4 g=2 params=bool", ErrorCode::kUsage, "params='bool' is no type"},
      {"fp64 n=1 c=4 l=4 g=2", ErrorCode::kUnsupported, "use bf16, fp16 or fp32"},
      {"bf16 n=1 c=65536 l=32768 g=2", ErrorCode::kUnsupported, "2^31 - 1 elements"},
      {"bf16 n=1073741825 c=1 l=1 g=1", ErrorCode::kUnsupported, "2^30 groups"},
      {"bf16 n=1073741824 c=1 l=65536 g=1", ErrorCode::kUnsupported, "2^47 bytes"},
  };
  for (const auto& [text, code, sentence] : kCases) {
    EXPECT_THAT(refusal(text, code), HasSubstr(sentence)) << text;
  }
}

TEST(GroupNormTest, TensorsAreDenseAndTheResultMayReplaceX) {
  const auto p = GroupNormProblem::parse("fp16 n=3 c=21 l=35 g=7 nhwc bias params=fp32");
  const auto tensors = group_norm_tensors(p);
  ASSERT_EQ(tensors.size(), std::size_t{kGroupNormTensors});
  EXPECT_EQ(tensors[kGroupNormX].strides, (TensorSpec::Dims{0, 35 * 21, 21, 1}));
  EXPECT_EQ(tensors[kGroupNormOut].bytes(), 2 * 3 * 21 * 35);
  EXPECT_EQ(tensors[kGroupNormOut].may_replace, std::vector<int>{kGroupNormX});
  EXPECT_FALSE(tensors[kGroupNormWeight].given);
  EXPECT_EQ(tensors[kGroupNormBias].bytes(), 4 * 21);
}

std::int64_t vector_of(const char* text, std::int64_t groups) {
  Config config = Config::parse("kChunks=1 kThreads=64 kPieces=0");
  config.set("kGroups", groups);
  return group_norm_tiling(GroupNormProblem::parse(text), config).vector;
}

TEST(GroupNormTest, AccessesAreAsWideAsChannelsPositionsAndAlignmentAllow) {
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=16 g=2 weight", 1), 8);
  EXPECT_EQ(vector_of("fp32 n=1 c=8 l=16 g=2 weight", 1), 4);
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=16 g=2 weight align=4", 1), 2);
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=4 g=2 weight", 1), 8);  // two channels
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=6 g=2 weight", 1), 2);
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=6 g=2", 1), 8);  // no one asks for an element's channel
  EXPECT_EQ(vector_of("bf16 n=1 c=8 l=5 g=8 weight", 1), 1);
  EXPECT_EQ(vector_of("bf16 n=1 c=320 l=9 g=32 nhwc weight", 1), 2);
  EXPECT_EQ(vector_of("bf16 n=1 c=320 l=9 g=32 nhwc weight", 4), 8);
  EXPECT_EQ(vector_of("bf16 n=1 c=320 l=9 g=32 nhwc weight params=fp32 align=8", 4), 2);
}

// A chunk's rows, and a thread's steps through them, cover the tile.
TEST(GroupNormTest, EveryProblemHasConfigsThatCoverIt) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kProblems) {
    const auto p = GroupNormProblem::parse(text);
    const std::vector<Config> configs = testing_support::space_of(p, device).enumerate();
    EXPECT_GE(configs.size(), 1u) << text;
    EXPECT_LE(configs.size(), 6000u) << text;
    const auto defaults = testing_support::defaults_of(p, device);
    // One more, should the first be blocked; of a single number there is one kernel.
    ASSERT_GE(defaults.size(), p.elements() > 1 ? 2u : 1u) << text;
    EXPECT_NE(defaults.front(), defaults.size() > 1 ? defaults[1] : Config()) << text;
    EXPECT_EQ(defaults.back().at("kTurns"), 1) << text;
    for (const Config& config : configs) {
      const GroupNormTiling t = group_norm_tiling(p, config);
      if (t.cluster) {
        ASSERT_LE(dynamic_shared_bytes(*ProblemPtr(p), config), device.shared_per_block)
            << text << ' ' << config.text();
      }
      if (t.even) {
        ASSERT_EQ(t.steps % t.pieces, 0) << text << ' ' << config.text();
      }
      ASSERT_GE(t.chunks * t.chunk_rows, t.rows) << text << ' ' << config.text();
      ASSERT_LT((t.chunks - 1) * t.chunk_rows, t.rows) << text << ' ' << config.text();
      ASSERT_GE(t.steps * t.busy, t.chunk_vectors()) << text << ' ' << config.text();
      ASSERT_LE(t.busy, t.tile_threads) << text << ' ' << config.text();
      const std::int64_t group = p.group_channels() * p.positions;
      const std::int64_t in_tile = p.nhwc ? t.groups * group : group;
      ASSERT_EQ(t.rows * t.row_vectors * t.vector, in_tile) << text << ' ' << config.text();
    }
    RecordProperty(text, static_cast<int>(configs.size()));
  }
}

TEST(GroupNormTest, NoProblemIsWithoutAConfig) {
  const DeviceInfo device = testing_support::h200_device();
  std::mt19937 random(20261123);
  const auto up_to = [&](double most) {
    return static_cast<std::int64_t>(
        std::exp2(std::uniform_real_distribution<double>(0, std::log2(most))(random)));
  };
  for (int i = 0; i < 400; ++i) {
    GroupNormProblem p;
    p.type = i % 3 == 0 ? ElementType::kFp32 : ElementType::kBf16;
    p.parameters = i % 2 == 0 ? ElementType::kFp32 : p.type;
    p.images = up_to(300);
    p.groups = up_to(200);
    p.channels = p.groups * up_to(300);
    p.positions = up_to(30000);
    p.nhwc = i % 4 != 0;
    p.weight = i % 5 != 0;
    p.eps = kGroupNormEps;
    p = p.canonical();
    p.validate();
    EXPECT_GE(testing_support::defaults_of(p, device).size(), 1u) << p.text();
  }
}

TEST(GroupNormTest, ADefaultStartsEarlyWhereItCan) {
  DeviceInfo device = testing_support::h200_device();
  const GroupNormProblem p = GroupNormProblem::parse("bf16 n=1 c=512 l=16 g=8 weight bias mish");
  for (const int major : {8, 9}) {
    device.cc_major = major;
    const Config config = testing_support::defaults_of(p, device).at(0);
    EXPECT_EQ(config.at("kEarlyStart"), major >= 9 ? 1 : 0);
  }
}

TEST(GroupNormTest, LargeGroupsAreChunkedAndSmallOnesWhole) {
  const DeviceInfo device = testing_support::h200_device();
  const auto chunks = [&](const char* text) {
    const GroupNormProblem p = GroupNormProblem::parse(text);
    return testing_support::defaults_of(p, device).front().at("kChunks");
  };
  EXPECT_GT(chunks("bf16 n=1 c=512 l=65536 g=32 weight bias silu"), 1);
  EXPECT_GT(chunks("bf16 n=1 c=512 l=65536 g=32 nhwc weight bias silu"), 1);
  EXPECT_EQ(chunks("bf16 n=1 c=512 l=16 g=8 weight bias mish"), 1);
  EXPECT_EQ(chunks("bf16 n=256 c=512 l=16 g=8 nhwc weight bias mish"), 1);
}

// As the trials of an H200 and an H100 speak for.
TEST(GroupNormTest, DefaultsAreOneWarpForSmallGroupsAndPairsOfCtasWhereSmsWouldBeIdle) {
  const auto first = [](const char* text) {
    const GroupNormProblem p = GroupNormProblem::parse(text);
    return testing_support::defaults_of(p, testing_support::h200_device()).front();
  };
  EXPECT_EQ(first("bf16 n=256 c=512 l=16 g=8 weight bias mish").at("kThreads"), 32);
  EXPECT_EQ(first("bf16 n=2 c=1280 l=256 g=32 nhwc weight bias silu").at("kThreads"), 320);
  const Config pair = first("bf16 n=2 c=320 l=4096 g=32 weight bias silu");
  EXPECT_EQ(pair.at("kCluster"), 1);
  EXPECT_EQ(pair.at("kChunks"), 2);
  EXPECT_EQ(first("bf16 n=64 c=320 l=4096 g=32 weight bias silu").at("kCluster"), 0);
}

GroupNormParams params_of(const KernelLaunch& launch) {
  GroupNormParams params;
  EXPECT_EQ(launch.params.size(), sizeof(params));
  std::memcpy(&params, launch.params.data(), sizeof(params));
  return params;
}

TEST(GroupNormTest, WholeGroupsAreOneLaunchWithoutScratch) {
  const auto p = GroupNormProblem::parse("bf16 n=3 c=60 l=16 g=5 weight eps=0.25");
  const Config config =
      Config::parse("kChunks=1 kGroups=4 kThreads=128 kPieces=0 kEarlyStart=0 kStreaming=0");
  const LaunchPlan plan = testing_support::plan_of(p, config, testing_support::h200_device(), {1});
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.scratch_bytes, 0);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 4u);  // 15 groups by 4
  EXPECT_EQ(plan.kernels[0].shape.block[0], 128u);
  EXPECT_EQ(plan.kernels[0].shape.shared_bytes, 0u);  // a warp has a group
  EXPECT_EQ(params_of(plan.kernels[0]).groups, 15);
  EXPECT_EQ(params_of(plan.kernels[0]).eps, 0.25f);
}

TEST(GroupNormTest, ChunksAreTwoLaunchesWithTheirMomentsBetween) {
  const auto p = GroupNormProblem::parse("bf16 n=3 c=320 l=4096 g=32 nhwc weight bias");
  const Config config =
      Config::parse("kChunks=16 kGroups=4 kThreads=320 kPieces=4 kEarlyStart=1 kStreaming=1");
  const ParameterSpace space = testing_support::space_of(p, testing_support::h200_device());
  ASSERT_EQ(space.explain(space.completed(config)), std::nullopt);
  const LaunchPlan plan = testing_support::plan_of(p, config, testing_support::h200_device(), {1});
  ASSERT_EQ(plan.kernels.size(), 2u);
  EXPECT_EQ(plan.scratch_bytes, 3 * 32 * 16 * 8);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plan.kernels[i].kernel, i);
    EXPECT_EQ(plan.kernels[i].shape.grid[0], 3u * 8 * 16);
    EXPECT_TRUE(plan.kernels[i].shape.waits_for_earlier);
    std::set<int> open;
    for (const PointerSlot& slot : plan.kernels[i].pointers) open.insert(slot.tensor);
    EXPECT_TRUE(open.contains(PointerSlot::kScratch));
  }
  const auto kernels = testing_support::kernels_of(p, config);
  EXPECT_EQ(kernels[0].entry, "vitune_group_norm_statistics");
  EXPECT_EQ(kernels[1].entry, "vitune_group_norm_apply");
}

TEST(GroupNormTest, ClustersAreOneLaunchOfWholeClustersWithoutScratch) {
  const auto p = GroupNormProblem::parse("bf16 n=2 c=320 l=4096 g=32 weight bias silu");
  const DeviceInfo device = testing_support::h200_device();
  const Config config = Config::parse(
      "kChunks=2 kCluster=1 kEarlyStart=1 kGroups=1 kPieces=2 kStreaming=1 kThreads=640");
  const ParameterSpace space = testing_support::space_of(p, device);
  ASSERT_EQ(space.explain(space.completed(config)), std::nullopt);
  const auto kernels = testing_support::kernels_of(p, config);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].entry, "vitune_group_norm_cluster");
  // A chunk; words of two CTAs, a barrier, sums of 20 warps.
  EXPECT_EQ(kernels[0].shared_bytes, 40960 + 16 + 8 + 240);
  const LaunchPlan plan = testing_support::plan_of(p, config, device, {1});
  ASSERT_EQ(plan.kernels.size(), 1u);
  EXPECT_EQ(plan.scratch_bytes, 0);
  EXPECT_EQ(plan.kernels[0].shape.grid[0], 64u * 2);
  EXPECT_EQ(params_of(plan.kernels[0]).groups, 64);
  EXPECT_EQ(group_norm().family(config), "cluster");
  const std::string source = testing_support::source_of(p, config);
  EXPECT_THAT(source, HasSubstr("__cluster_dims__(2, 1, 1)"));
  EXPECT_THAT(source, HasSubstr("group_norm/clusters.cuh"));
}

constexpr char kLarge[] = "bf16 n=1 c=512 l=65536 g=32 weight bias silu";
constexpr char kTwoImagesNhwc[] = "bf16 n=2 c=512 l=65536 g=32 nhwc weight bias mish";
constexpr char kLargeNhwc[] = "bf16 n=1 c=512 l=65536 g=32 nhwc weight bias silu";

TEST(GroupNormTest, WavesAreACooperativeLaunchBehindOneThatClearsItsWords) {
  const auto p = GroupNormProblem::parse(kLargeNhwc);
  const DeviceInfo device = testing_support::h200_device();
  const Config config = Config::parse(
      "kChunks=128 kCluster=0 kEarlyStart=1 kGroups=8 kPieces=4 kStreaming=2 kThreads=512 "
      "kTurns=4");
  ASSERT_EQ(testing_support::space_of(p, device).explain(config), std::nullopt);
  EXPECT_EQ(group_norm().family(config), "grid");
  const auto kernels = testing_support::kernels_of(p, config);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].entry, "vitune_group_norm_grid");
  // 28 vectors of each thread, and twice moments of 16 warps and mean and deviation of 8 groups.
  EXPECT_EQ(kernels[0].shared_bytes, 28 * 512 * 16 + 2 * 8 * (16 * 8 + 8));
  EXPECT_EQ(kernels[1].entry, "vitune_group_norm_clear");
  const LaunchPlan plan = testing_support::plan_of(p, config, device, {1});
  ASSERT_EQ(plan.kernels.size(), 2u);
  EXPECT_EQ(plan.scratch_bytes, 8 * 32 * 128);
  const KernelLaunch &clear = plan.kernels[0], &grid = plan.kernels[1];
  EXPECT_EQ(clear.kernel, 1u);
  EXPECT_EQ(clear.shape.grid[0], 8u);  // 4096 words by 512 threads
  EXPECT_TRUE(clear.shape.waits_for_earlier);
  EXPECT_FALSE(clear.shape.is_cooperative);
  EXPECT_EQ(grid.kernel, 0u);
  EXPECT_EQ(grid.shape.grid[0], 128u);
  EXPECT_TRUE(grid.shape.waits_for_earlier);
  EXPECT_TRUE(grid.shape.is_cooperative);
  EXPECT_THAT(testing_support::source_of(p, config), HasSubstr("group_norm/grid.cuh"));
  // A part of a device, as a process may have that shares it.
  DeviceInfo part = device;
  part.sm_count = 100;
  EXPECT_THAT([&] { testing_support::plan_of(p, config, part, {1}); },
              testing::ThrowsMessage<Error>(HasSubstr("128 CTAs have to run at once")));
}

std::vector<Config> waves_of(const std::string& text, const DeviceInfo& device) {
  const auto p = GroupNormProblem::parse(text);
  std::vector<Config> waves;
  for (const Config& config : testing_support::space_of(p, device).enumerate()) {
    const GroupNormTiling t = group_norm_tiling(p, config);
    if (!t.grid()) continue;
    waves.push_back(config);
    EXPECT_LE(t.grid_bytes(), device.shared_per_block) << config.text();
    EXPECT_EQ(group_norm_tiles(p, t.groups) * t.chunks, 128 * t.waves) << config.text();
    EXPECT_EQ(t.held % t.pieces, 0) << config.text();
    EXPECT_LE(4 * t.held, t.steps) << config.text();
  }
  return waves;
}

std::vector<std::int64_t> judged_images(const GroupNormProblem& p, const Config& config) {
  const DeviceInfo device = testing_support::h200_device();
  std::vector<std::int64_t> images;
  const ProblemPtr problem = p;
  for (const JudgeCase& each : problem->op().cases(*problem, config, device)) {
    const GroupNormProblem& asked = group_norm_of(*each.problem);
    if (images.empty() || images.back() != asked.images) images.push_back(asked.images);
    EXPECT_FALSE(testing_support::plan_of(asked, config, device, {1}).kernels.empty());
  }
  return images;
}

TEST(GroupNormTest, OneImageAndGroupsThatACtaLacksAreJudged) {
  const auto images = [](const char* text, const char* config) {
    return judged_images(GroupNormProblem::parse(text), Config::parse(config));
  };
  constexpr char kWhole[] = "kChunks=1 kGroups=8 kThreads=128 kPieces=1 kEarlyStart=0 kStreaming=0";
  EXPECT_EQ(images("bf16 n=9 c=60 l=16 g=15 weight", kWhole), (std::vector<std::int64_t>{1, 9}));
  EXPECT_EQ(images("bf16 n=9 c=60 l=16 g=5 weight", kWhole), (std::vector<std::int64_t>{1, 2, 9}));
  EXPECT_EQ(images("bf16 n=1 c=60 l=16 g=5 weight", kWhole), (std::vector<std::int64_t>{1}));
}

// How often its CTAs go through the tensor is compiled in: with fewer images they would wait for
// words that nobody posts, or read images that are not there.
TEST(GroupNormTest, WavesAreJudgedAndPlannedForTheImagesTheyWereMadeForAlone) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text :
       {"bf16 n=4 c=128 l=65536 g=1", "bf16 n=2 c=256 l=32768 g=8 nhwc", kTwoImagesNhwc}) {
    auto p = GroupNormProblem::parse(text);
    const std::int64_t images = p.images;
    const auto waves = waves_of(text, device);
    EXPECT_FALSE(waves.empty()) << text;
    for (const Config& config : waves) {
      p.images = images;
      EXPECT_EQ(judged_images(p, config), std::vector<std::int64_t>{images}) << config.text();
      p.images = 1;
      EXPECT_THAT([&] { testing_support::plan_of(p, config, device, {1}); },
                  testing::ThrowsMessage<Error>(HasSubstr("no whole groups")))
          << text << ": " << config.text();
    }
  }
}

TEST(GroupNormTest, WavesAreFewAndOfLargeGroupsThatDivideEvenly) {
  DeviceInfo device = testing_support::h200_device();
  for (const char* const text : {kLarge, kLargeNhwc, "fp32 n=1 c=256 l=65536 g=16 silu",
                                 "bf16 n=1 c=256 l=262144 g=32 weight bias silu", kTwoImagesNhwc}) {
    const std::size_t waves = waves_of(text, device).size();
    EXPECT_GE(waves, 1u) << text;
    EXPECT_LE(waves, 4u) << text;
    // A kernel that nobody tuned is one of them; those that read twice stand behind it.
    const auto p = GroupNormProblem::parse(text);
    const auto defaults = testing_support::defaults_of(p, device);
    ASSERT_EQ(defaults.size(), 3u) << text;
    EXPECT_EQ(group_norm().family(defaults[0]), "grid") << text;
    EXPECT_EQ(defaults[0].at("kStreaming"), 2) << text;
  }
  for (const char* const text :
       {"bf16 n=2 c=320 l=4096 g=32 weight bias silu", "bf16 n=2 c=512 l=4096 g=32 nhwc",
        "bf16 n=1 c=512 l=65536 g=32 weight bias align=8",  // narrow accesses
        "bf16 n=1 c=512 l=65000 g=32 weight bias",          // parts of unequal size
        "bf16 n=1 c=320 l=65536 g=32 nhwc weight bias"}) {  // vectors of two groups
    EXPECT_EQ(waves_of(text, device).size(), 0u) << text;
  }
  device.cc_major = 8;
  EXPECT_EQ(waves_of(kLarge, device).size(), 0u);
}

// A config of before there were clusters has none, and its kernel's text is what it was.
TEST(GroupNormTest, ConfigsOfBeforeClustersAreReadAsTheyWere) {
  const auto p = GroupNormProblem::parse("bf16 n=1 c=512 l=65536 g=32 weight bias silu");
  const Config old =
      Config::parse("kChunks=64 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=1 kThreads=512");
  const ParameterSpace space = testing_support::space_of(p, testing_support::h200_device());
  const Config whole = space.completed(old);
  EXPECT_EQ(space.explain(whole), std::nullopt);
  EXPECT_EQ(whole.at("kCluster"), 0);
  EXPECT_EQ(whole.at("kTurns"), 1);
  EXPECT_EQ(group_norm().family(old), "group_norm");
  EXPECT_EQ(testing_support::source_of(p, whole), testing_support::source_of(p, old));
  for (const char* const newer : {"cluster", "grid.cuh", "kTurns"}) {
    EXPECT_EQ(testing_support::source_of(p, old).find(newer), std::string::npos) << newer;
  }
}

TEST(GroupNormTest, ClustersAreOfNchwOnDevicesThatHaveThem) {
  DeviceInfo device = testing_support::h200_device();
  const auto clusters = [&](const char* text) {
    const auto p = GroupNormProblem::parse(text);
    const std::vector<Config> configs = testing_support::space_of(p, device).enumerate();
    return std::ranges::count_if(configs, [](const Config& c) { return c.at("kCluster") != 0; });
  };
  constexpr char kNchw[] = "bf16 n=2 c=320 l=4096 g=32 weight bias silu";
  EXPECT_GT(clusters(kNchw), 0);
  EXPECT_EQ(clusters("bf16 n=2 c=320 l=4096 g=32 nhwc weight bias silu"), 0);
  EXPECT_EQ(clusters("bf16 n=1 c=512 l=65536 g=32 weight bias silu"), 0);  // larger than 8 SMs hold
  device.cc_major = 8;
  EXPECT_EQ(clusters(kNchw), 0);
}

// Only the number of images may differ between problems that share their kernels.
TEST(GroupNormTest, KernelClassesHoldEveryCompileTimeFact) {
  const char* const kBase = "bf16 n=2 c=32 l=16 g=4 weight bias";
  const auto kernel_class = [](const std::string& text) {
    return group_norm().kernel_class(*ProblemPtr(GroupNormProblem::parse(text)));
  };
  const std::string base = kernel_class(kBase);
  EXPECT_EQ(kernel_class("bf16 n=5 c=32 l=16 g=4 weight bias eps=0.5"), base);
  for (const char* const other :
       {"fp16 n=2 c=32 l=16 g=4 weight bias", "bf16 n=2 c=64 l=16 g=4 weight bias",
        "bf16 n=2 c=32 l=32 g=4 weight bias", "bf16 n=2 c=32 l=16 g=8 weight bias",
        "bf16 n=2 c=32 l=16 g=4 nhwc weight bias", "bf16 n=2 c=32 l=16 g=4 bias",
        "bf16 n=2 c=32 l=16 g=4 weight", "bf16 n=2 c=32 l=16 g=4 weight bias params=fp32",
        "bf16 n=2 c=32 l=16 g=4 weight bias silu", "bf16 n=2 c=32 l=16 g=4 weight bias mish",
        "bf16 n=2 c=32 l=16 g=4 weight bias align=8"}) {
    EXPECT_NE(kernel_class(other), base) << other;
  }
}

}  // namespace
}  // namespace vitune::group_norm_test
