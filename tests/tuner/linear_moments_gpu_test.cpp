// tests/tuner/linear_moments_gpu_test.cpp -- Moments of rows that a linear layer writes and the
// next one takes for its norm, against the fp64 judge; mistakes and a race that must be seen.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_moments_gpu_test {
namespace {

struct MomentsCase {
  const char* name;
  const char* problem;
  const char* config;
};

void PrintTo(const MomentsCase& each, std::ostream* out) { *out << each.problem; }

const MomentsCase kCases[] = {
    {"WrittenByAPair", "linear bf16 m=410 n=224 k=200 bias residual moments=32",
     "kFamily=1 kBlockM=128 kBlockN=96 kStages=3 kSplits=1 kGroups=2 kSchedule=0 kPair=1 kLead=1"},
    {"WrittenByThreeWarpgroups", "linear fp16 m=390 n=384 k=72 bias scale residual moments=192",
     "kFamily=1 kBlockM=192 kBlockN=192 kStages=3 kSplits=1 kGroups=3 kSchedule=0 kPair=1 kLead=1"},
    {"WrittenInTurns", "linear bf16 m=300 n=160 k=200 scale residual out=@168 moments=32",
     "kFamily=1 kBlockM=64 kBlockN=96 kStages=3 kSplits=1 kGroups=2 kSchedule=1 kPair=0 kLead=0"},
    {"WrittenOfTwoBlocks", "linear bf16 m=520 n=192 k=200 bias residual params=fp32 moments=64",
     "kFamily=1 kBlockM=256 kBlockN=64 kStages=3 kSplits=1 kGroups=2 kSchedule=0 kPair=2 kLead=1"},
    {"WrittenOfThreeBlocksInTurns", "linear bf16 m=400 n=192 k=72 bias residual moments=64",
     "kFamily=1 kBlockM=192 kBlockN=128 kStages=4 kSplits=1 kGroups=2 kSchedule=1 kPair=0 kLead=0"},
    {"WrittenOfGelu", "linear bf16 m=70 n=64 k=40 bias act=gelu moments=32",
     "kFamily=1 kBlockM=64 kBlockN=32 kStages=3 kSplits=1 kGroups=1 kSchedule=0 kPair=0 kLead=0"},
    {"WrittenWithGaps", "linear bf16 m=130 n=32 k=24 bias rows=65+2 moments=32",
     "kFamily=1 kBlockM=128 kBlockN=64 kStages=3 kSplits=1 kGroups=2 kSchedule=1 kPair=0 kLead=0"},
    {"WrittenByParts", "linear bf16 m=150 n=128 k=600 bias residual moments=64",
     "kFamily=4 kBlockN=64 kStages=3 kSplits=2"},
    {"WrittenByFourParts", "linear fp16 m=70 n=64 k=1024 bias scale residual moments=32",
     "kFamily=4 kBlockN=32 kStages=4 kSplits=4"},
    {"TakenByAPair", "linear bf16 m=410 n=200 k=224 norm=moments:32 bias act=gelu",
     "kFamily=1 kBlockM=128 kBlockN=96 kStages=3 kSplits=1 kGroups=2 kSchedule=0 kPair=1 kLead=1"},
    {"TakenInTurnsByAPair", "linear fp16 m=400 n=200 k=288 norm=moments:96 eps=0.01 bias act=gelu",
     "kFamily=1 kBlockM=128 kBlockN=64 kStages=4 kSplits=1 kGroups=2 kSchedule=1 kPair=1 kLead=0"},
    {"TakenInTurns", "linear bf16 m=650 n=136 k=160 norm=moments:160 bias",
     "kFamily=1 kBlockM=128 kBlockN=64 kStages=3 kSplits=1 kGroups=2 kSchedule=1 kPair=2 kLead=0"},
    // Behind a norm whole inputs give no whole sums: a value of row 577 rounds otherwise than in
    // fp64.
    {"TakenAndWrittenOfManyRows", "linear bf16 m=926 n=224 k=1216 norm=moments:32 moments=32",
     "kFamily=1 kBlockM=64 kBlockN=64 kStages=4 kSplits=1 kGroups=1 kSchedule=0 kPair=0 kLead=0"},
    {"TakenByParts", "linear bf16 m=70 n=72 k=608 norm=moments:32 bias act=gelu",
     "kFamily=4 kBlockN=64 kStages=3 kSplits=2"},
    {"TakenAndWritten", "linear bf16 m=200 n=128 k=160 norm=moments:32 bias residual moments=64",
     "kFamily=1 kBlockM=64 kBlockN=64 kStages=3 kSplits=1 kGroups=1 kSchedule=0 kPair=1 kLead=0"},
    {"OneRow", "linear bf16 m=1 n=96 k=32 norm=moments:32 bias moments=32",
     "kFamily=1 kBlockM=64 kBlockN=32 kStages=3 kSplits=1 kGroups=1 kSchedule=0 kPair=1 kLead=0"},
};

constexpr char kMoments[] = "linear/moments_sm90.cuh", kEpilogue[] = "linear/epilogue_sm90.cuh";
// Without a norm before it whole numbers are exact, and so are the bounds of what is written.
constexpr char kWriting[] = "linear bf16 m=270 n=128 k=160 bias residual moments=64";
constexpr char kTaking[] = "linear bf16 m=650 n=200 k=160 norm=moments:32 bias";
constexpr char kWritingConfig[] =
    "kFamily=1 kBlockM=64 kBlockN=64 kStages=3 kSplits=1 kGroups=1 kSchedule=0 kPair=0 kLead=0";
// More rows of a tile than lanes that merge, and blocks one after the other.
constexpr char kTakingConfig[] =
    "kFamily=1 kBlockM=128 kBlockN=64 kStages=3 kSplits=1 kGroups=2 kSchedule=0 kPair=0 kLead=0";
constexpr Mistake kOfTaking[] = {
    {kEpilogue, "block_row(block) + 8 * half + lane / 4));", "block_row(block) + lane / 4));"},
    {kMoments, "from + 2 * block", "from"},
    {kMoments, "{pivot + from_pivot,", "{pivot,"},
    {kMoments, "fmaf(-from_pivot, from_pivot, ", "fmaf(0.f, from_pivot, "},
    {kMoments, "fmaf(distance * T::kMomentsGiven, distance,", "fmaf(distance, distance,"},
    {kMoments, "tile.row() + first", "first"},
    {kMoments, "round0 < kRounds;", "round0 < 1;"},
};
constexpr Mistake kOfWriting[] = {
    {kMoments, "lane % 2 * 2 + i", "lane % 2 + i"},
    {kMoments, "own + __shfl_xor_sync(0xffffffffu, own, 1)", "own * 1.9f"},
    {kMoments, "value - center, value - center", "value, value"},
    {kMoments, "fmaf(distance, share, all_mean)", "center"},
    {kMoments, "(float(kStoreTileColumns * before) * share)", "kStoreTileColumns"},
    {kMoments, "+ first) * 2", ") * 2"},
    {kEpilogue, "add_store_tile(to + lane / 2", "add_store_tile(to + lane % 2"},
};
// Waits that order accesses, left out.
constexpr Mistake kUnorderedTaking[] = {
    {kEpilogue, "mbarrier_wait(shared.merged_full(merged.index), merged.phase);", ""},
    {kMoments, "mbarrier_wait(shared.merged_empty(at.index), at.phase ^ 1);", ""},
};
constexpr Mistake kUnorderedWriting[] = {
    {kEpilogue, "fence_proxy_async();\n      __syncwarp();", "fence_proxy_async();"},
};

class LinearMomentsGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  }
};

class LinearMomentsCasesGpuTest : public LinearMomentsGpuTest,
                                  public testing::WithParamInterface<MomentsCase> {};

TEST_P(LinearMomentsCasesGpuTest, MatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = Config::parse(GetParam().config);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearMomentsCasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearMomentsGpuTest, MistakesAreSeen) {
  expect_seen(parse_problem(kTaking), Config::parse(kTakingConfig), kOfTaking);
  expect_seen(parse_problem(kWriting), Config::parse(kWritingConfig), kOfWriting);
}

// Staged values are read once more for the moments, as are those that other warps have merged:
// it must be there, and must stay.
TEST_F(LinearMomentsGpuTest, MissingWaitsAreSeen) {
  if (device_.name != "emulated device") GTEST_SKIP() << "only the emulated device looks for races";
  const auto expect_race = [&](const char* text, const char* tile,
                               std::span<const Mistake> mistakes) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = Config::parse(tile);
    for (const Mistake& mistake : mistakes) {
      Verifier verifier = verifier_of(problem);
      const auto launch = [&] {
        std::fputs(verdict(verifier, *problem, config, &mistake).c_str(), stderr);
        std::_Exit(0);
      };
      EXPECT_EXIT(launch(), testing::ExitedWithCode(0), "a race|never ends") << mistake.words;
    }
  };
  expect_race(kTaking, kTakingConfig, kUnorderedTaking);
  expect_race(kWriting, kWritingConfig, kUnorderedWriting);
}

}  // namespace
}  // namespace vitune::linear_moments_gpu_test
