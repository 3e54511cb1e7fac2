// tests/tuner/group_norm_cluster_gpu_test.cpp -- Group norms by clusters of CTAs against the fp64
// judge: all widths of copies, tails, slices, turns; mistakes that the judge must see, and waits
// whose absence the emulated device must.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "generator/group_norm/kernel_spec.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune {
namespace {

struct ClusterCase {
  const char* name;
  const char* problem;
  const char* config;
};

void PrintTo(const ClusterCase& each, std::ostream* out) {
  *out << each.problem << ": " << each.config;
}

// More turns than a device needs are no mistake: what a tile leaves to the next is seen.
constexpr ClusterCase kCases[] = {
    {"OneTurn", "group_norm bf16 n=3 c=16 l=1024 g=2 weight bias silu",
     "kAhead=0 kChunks=2 kEarlyStart=0 kGroups=1 kPieces=2 kStreaming=0 kThreads=128 kTurns=1"},
    {"TurnsWithNothingAhead", "group_norm bf16 n=3 c=16 l=1024 g=2 weight bias silu",
     "kAhead=0 kChunks=2 kEarlyStart=1 kGroups=1 kPieces=1 kStreaming=1 kThreads=64 kTurns=3"},
    {"ATurnLessForTheLast", "group_norm bf16 n=7 c=8 l=2048 g=1 weight bias mish",
     "kAhead=1 kChunks=4 kEarlyStart=0 kGroups=1 kPieces=2 kStreaming=1 kThreads=64 kTurns=4"},
    {"AWholeTileAhead", "group_norm bf16 n=5 c=8 l=2048 g=1 weight bias silu",
     "kAhead=2 kChunks=2 kEarlyStart=1 kGroups=1 kPieces=4 kStreaming=0 kThreads=128 kTurns=5"},
    {"FourBytesAndTails", "group_norm fp16 n=3 c=15 l=1002 g=3 weight bias mish",
     "kAhead=3 kChunks=2 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=0 kThreads=96 kTurns=3"},
    {"EightBytesAndTails", "group_norm bf16 n=2 c=10 l=2052 g=2 weight silu params=fp32",
     "kAhead=1 kChunks=4 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=1 kThreads=64 kTurns=2"},
    {"Fp32", "group_norm fp32 n=2 c=8 l=4100 g=2 bias silu",
     "kAhead=2 kChunks=4 kEarlyStart=1 kGroups=1 kPieces=4 kStreaming=1 kThreads=128 kTurns=2"},
    {"NoParameters", "group_norm fp32 n=4 c=5 l=3277 g=1 align=4",
     "kAhead=4 kChunks=4 kEarlyStart=0 kGroups=1 kPieces=8 kStreaming=0 kThreads=64 kTurns=2"},
    {"Nhwc", "group_norm bf16 n=3 c=32 l=520 g=2 nhwc weight bias silu",
     "kAhead=2 kChunks=2 kEarlyStart=0 kGroups=1 kPieces=2 kStreaming=1 kThreads=128 kTurns=3"},
    {"NhwcOfOneGroup", "group_norm bf16 n=5 c=4 l=4099 g=1 nhwc bias params=fp32",
     "kAhead=1 kChunks=4 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=0 kThreads=256 kTurns=2"},
    {"Slices", "group_norm fp32 n=3 c=24 l=700 g=6 nhwc weight bias mish",
     "kAhead=1 kChunks=4 kEarlyStart=1 kGroups=3 kPieces=2 kStreaming=1 kThreads=192 kTurns=3"},
    {"ChannelsThatStraddleVectors", "group_norm bf16 n=3 c=40 l=413 g=4 nhwc weight bias silu",
     "kAhead=2 kChunks=2 kEarlyStart=0 kGroups=4 kPieces=2 kStreaming=1 kThreads=160 kTurns=3"},
    {"IdleThreadsOfSlices", "group_norm bf16 n=4 c=40 l=413 g=4 nhwc weight bias mish",
     "kAhead=1 kChunks=4 kEarlyStart=0 kGroups=4 kPieces=2 kStreaming=0 kThreads=64 kTurns=2"},
    {"EightCtas", "group_norm bf16 n=3 c=8 l=4096 g=1 weight bias silu",
     "kAhead=1 kChunks=8 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=1 kThreads=64 kTurns=3"},
    {"SixteenCtas", "group_norm bf16 n=3 c=16 l=4096 g=1 weight bias silu",
     "kAhead=2 kChunks=16 kEarlyStart=1 kGroups=1 kPieces=4 kStreaming=1 kThreads=64 kTurns=3"},
};

constexpr char kClusters[] = "group_norm/clusters.cuh";

constexpr Mistake kMistakes[] = {
    {kClusters, "Tile::rows_of(chunk) * kRowNumbers", "1"},
    {kClusters, "p.groups / C::kGroups), clusters", "p.groups / C::kGroups) - 1, clusters"},
    {kClusters, "unit + (is_next ? 1 : 2) * clusters < units", "false"},
    {kClusters, "is_next ? next : after", "next"},
    {kClusters, "more % kPieces, ring", "i, ring"},
    {kClusters, "merged<kWarpSize>(C::kChunks,", "merged<kWarpSize>(C::kChunks - 1,"},
    {kClusters, "rank) * kTiles + unit % kTiles", "rank) * kTiles"},
};

// Waits and barriers, each left out, and what the emulated device says.
struct UnorderedCluster {
  const char* name;
  Mistake mistake;
  const char* fault;
};

void PrintTo(const UnorderedCluster& each, std::ostream* out) { *out << each.name; }

constexpr UnorderedCluster kUnordered[] = {
    {"CopiesNotWaitedFor",
     {kClusters, "copy_wait<kRing - 1 - kPiece>", "copy_wait<kRing - kPiece>"},
     "a race"},
    {"AnotherTilesPlaces",
     {kClusters, "if (tile >= kRing * kPieceBytes) tile -= kRing * kPieceBytes;", "tile = 0;"},
     "a race"},
    {"OwnMomentsNotWaitedFor",
     {kClusters, "__syncthreads();\n  exchange.meet();", "exchange.meet();"},
     "a race"},
    {"WordsNotWaitedFor", {kClusters, "mbarrier_wait(barrier(), number / 2 % 2);", ""}, "a race"},
    {"PeersNotBegun",
     {kClusters, "cluster_barrier();  // now", "// now"},
     "a barrier that was not initialised|a race"},
    {"WordsStillRead",
     {kClusters, "mbarrier_arrive_at_peer(peer_address(barrier(), threadIdx.x))",
      "mbarrier_arrive(barrier())"},
     "a race"},
    {"OnePlaceForWords", {kClusters, "number % 2 * kBytes + 8", "8"}, "a race"},
};

class GroupNormClusterGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major < 9) GTEST_SKIP() << "clusters are of compute capability 9.0";
  }

  static Config config_of(const char* text) {
    Config config = Config::parse(text);
    config.set("kCluster", 1);
    return config;
  }
};

class GroupNormClusterCasesGpuTest : public GroupNormClusterGpuTest,
                                     public testing::WithParamInterface<ClusterCase> {};

TEST_P(GroupNormClusterCasesGpuTest, MatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().config);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, GroupNormClusterCasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

constexpr char kMistakenProblem[] = "group_norm bf16 n=4 c=40 l=413 g=4 nhwc weight bias silu";
constexpr char kMistakenConfig[] =
    "kAhead=1 kChunks=4 kEarlyStart=0 kGroups=2 kPieces=1 kStreaming=0 kThreads=160 kTurns=4";

TEST_F(GroupNormClusterGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  Verifier verifier = verifier_of(problem);
  ASSERT_EQ(verdict(verifier, *problem, config), "");
  for (const Mistake& mistake : kMistakes) {
    EXPECT_NE(verdict(verifier, *problem, config, &mistake), "") << mistake.others;
  }
}

// A fault ends a process's use of the device: each launches in a process of its own.
class GroupNormUnorderedClusterGpuTest : public GroupNormClusterGpuTest,
                                         public testing::WithParamInterface<UnorderedCluster> {};

TEST_P(GroupNormUnorderedClusterGpuTest, IsAFaultOnTheEmulatedDevice) {
  if (device_.name != "emulated device") GTEST_SKIP() << "only the emulated device looks for races";
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  Verifier verifier = verifier_of(problem);
  const auto launch = [&] {
    std::fputs(verdict(verifier, *problem, config, &GetParam().mistake).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(launch(), testing::ExitedWithCode(0), GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(Waits, GroupNormUnorderedClusterGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune
