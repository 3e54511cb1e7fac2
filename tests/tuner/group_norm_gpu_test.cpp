// tests/tuner/group_norm_gpu_test.cpp -- The group norm kernels against the fp64 judge: every
// tiling of small problems, in both layouts, all types, whole and in chunks; and mistakes that the
// judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/group_norm/kernel_spec.h"
#include "generator/group_norm/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::group_norm_gpu_test {
namespace {

struct GroupNormCase {
  const char* name;
  const char* problem;
};

void PrintTo(const GroupNormCase& each, std::ostream* out) { *out << each.problem; }

constexpr GroupNormCase kCases[] = {
    {"OneNumber", "group_norm fp32 n=1 c=1 l=1 g=1"},
    {"Matrix", "group_norm bf16 n=3 c=40 l=1 g=5 weight bias"},
    {"SmallGroups", "group_norm bf16 n=3 c=30 l=4 g=5 weight bias mish"},
    {"OddPositions", "group_norm fp16 n=2 c=21 l=35 g=7 weight bias silu"},
    {"OddPositionsNhwc", "group_norm fp16 n=2 c=21 l=35 g=7 nhwc weight bias silu"},
    {"ChannelsThatStraddleVectors", "group_norm bf16 n=2 c=40 l=30 g=4 nhwc weight bias silu"},
    {"OneChannelGroups", "group_norm bf16 n=2 c=24 l=50 g=24 nhwc weight bias"},
    {"ThreeChannelGroups", "group_norm fp16 n=1 c=24 l=33 g=8 nhwc bias mish"},
    {"NoParameters", "group_norm fp32 n=2 c=12 l=49 g=3"},
    {"NoParametersNhwc", "group_norm fp32 n=2 c=12 l=49 g=3 nhwc silu"},
    {"WideParameters", "group_norm bf16 n=2 c=32 l=64 g=2 weight bias params=fp32 silu"},
    {"WideParametersNhwc", "group_norm bf16 n=2 c=32 l=64 g=4 nhwc weight bias params=fp32 mish"},
    {"PoorlyAligned", "group_norm bf16 n=1 c=16 l=64 g=2 weight align=4"},
    {"PoorlyAlignedNhwc", "group_norm fp16 n=1 c=16 l=64 g=2 nhwc weight bias align=2"},
    {"ManyColumns", "group_norm fp32 n=1 c=1400 l=3 g=1 nhwc weight bias"},
    {"Chunks", "group_norm bf16 n=2 c=10 l=2050 g=2 weight bias silu"},
    {"ChunksOfOddRows", "group_norm fp16 n=1 c=9 l=3001 g=3 weight bias mish"},
    {"ChunksOfFiveRounds", "group_norm bf16 n=1 c=10 l=2048 g=1 weight bias silu"},
    {"ChunksFp32", "group_norm fp32 n=1 c=8 l=4100 g=2 weight silu"},
    {"ChunksNhwc", "group_norm bf16 n=2 c=40 l=413 g=4 nhwc weight bias silu"},
    {"ChunksNhwcFp32", "group_norm fp32 n=1 c=12 l=2900 g=3 nhwc weight bias mish"},
    {"ChunksNhwcOfOneGroup", "group_norm bf16 n=1 c=5 l=2000 g=1 nhwc bias params=fp32"},
};

constexpr Mistake kMistakes[] = {
    {"group_norm/moments.cuh", "mask = kLanes / 2", "mask = kLanes / 4"},
    {"group_norm/moments.cuh", "m.squares + m.count * distance * distance", "m.squares"},
    {"group_norm/moments.cuh", "squares[i] += their_squares[i] +",
     "squares[i] += their_squares[i] + 0.1f *"},
    {"group_norm/statistics.cuh", "v[j] - mean[j % kSlots]", "v[j]"},
    {"group_norm/statistics.cuh", "m.squares / m.count + eps", "m.squares / m.count"},
    {"group_norm/statistics.cuh", "tile.numbers_of(thread)", "1.f"},
    {"group_norm/tile.cuh", "vector(step) < vectors", "vector(step) + 1 < vectors"},
    {"group_norm/tile.cuh", "column(0) + element", "column(0)"},
    {"group_norm/groups.cuh", "Tile::rows_of(chunk) * kRowNumbers", "1"},
    {"group_norm/groups.cuh", "y[j] += parameters.bias[channel]",
     "y[j] += 0.9f * parameters.bias[channel]"},
    {"group_norm/activation.cuh", "1.f + exp2_approx(-kLog2E * y)", "1.f + exp2_approx(-y)"},
};

class GroupNormGpuTest : public JudgedKernelsTest {};

class GroupNormConfigsGpuTest : public GroupNormGpuTest,
                                public testing::WithParamInterface<GroupNormCase> {};

// So many of the clusters' tilings are passed by each time: their own test has each form of them.
constexpr std::size_t kClusterStep = 5;

// Every tiling; the tunables that change no element's way take turns.
TEST_P(GroupNormConfigsGpuTest, EveryTilingMatchesTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  bool whole = false, chunked = false;
  std::size_t tilings = 0, clusters = 0;
  for (Config config : group_norm().space(*problem, device_).enumerate()) {
    if (config.at("kEarlyStart") != 0 || config.at("kStreaming") != 0) continue;
    const bool is_cluster = config.at("kCluster") != 0;
    if (is_cluster && clusters++ % kClusterStep != 0) continue;
    config.set("kEarlyStart", static_cast<std::int64_t>(tilings % 2));
    config.set("kStreaming", static_cast<std::int64_t>(tilings++ % (is_cluster ? 2 : 3)));
    (config.at("kChunks") == 1 ? whole : chunked) = true;
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
  const bool has_chunks = std::string(GetParam().name).starts_with("Chunks");
  EXPECT_TRUE(whole);
  EXPECT_EQ(chunked, has_chunks);
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, GroupNormConfigsGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// The slices' chunks of this one lack rows, and their vectors have elements of two groups.
TEST_F(GroupNormGpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("group_norm fp32 n=1 c=40 l=1005 g=4 nhwc weight bias silu");
  const Config config =
      Config::parse("kChunks=4 kGroups=2 kThreads=128 kPieces=2 kEarlyStart=0 kStreaming=0");
  const ParameterSpace space = group_norm().space(*problem, device_);
  ASSERT_EQ(space.explain(space.completed(config)), std::nullopt);
  expect_seen(problem, config, kMistakes);
}

}  // namespace
}  // namespace vitune::group_norm_gpu_test
