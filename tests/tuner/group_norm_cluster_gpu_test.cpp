// tests/tuner/group_norm_cluster_gpu_test.cpp -- Group norms by clusters of CTAs against the fp64
// judge: all widths of copies, tails, many and few CTAs; mistakes that the judge must see, and
// waits whose absence the emulated device must.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "generator/group_norm/kernel_spec.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::group_norm_cluster_gpu_test {
namespace {

struct ClusterCase {
  const char* name;
  const char* problem;
  const char* config;
};

void PrintTo(const ClusterCase& each, std::ostream* out) {
  *out << each.problem << ": " << each.config;
}

constexpr ClusterCase kCases[] = {
    {"SixteenBytes", "group_norm bf16 n=3 c=16 l=1024 g=2 weight bias silu",
     "kChunks=2 kEarlyStart=0 kGroups=1 kPieces=2 kStreaming=0 kThreads=128"},
    {"OnePiece", "group_norm bf16 n=3 c=8 l=2048 g=1 weight bias mish",
     "kChunks=4 kEarlyStart=1 kGroups=1 kPieces=8 kStreaming=1 kThreads=64"},
    {"ManyThreads", "group_norm bf16 n=2 c=20 l=4096 g=2 weight bias silu",
     "kChunks=2 kEarlyStart=1 kGroups=1 kPieces=2 kStreaming=1 kThreads=640"},
    {"FourBytesAndTails", "group_norm fp16 n=3 c=15 l=1002 g=3 weight bias mish",
     "kChunks=2 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=0 kThreads=96"},
    {"EightBytesAndTails", "group_norm bf16 n=2 c=10 l=2052 g=2 weight silu params=fp32",
     "kChunks=4 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=1 kThreads=64"},
    {"Fp32", "group_norm fp32 n=2 c=8 l=4100 g=2 bias silu",
     "kChunks=4 kEarlyStart=1 kGroups=1 kPieces=4 kStreaming=1 kThreads=128"},
    {"NoParameters", "group_norm fp32 n=4 c=5 l=3277 g=1 align=4",
     "kChunks=4 kEarlyStart=0 kGroups=1 kPieces=8 kStreaming=0 kThreads=128"},
    {"EightCtas", "group_norm bf16 n=3 c=8 l=4096 g=1 weight bias silu",
     "kChunks=8 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=1 kThreads=64"},
};

constexpr char kClusters[] = "group_norm/clusters.cuh";

// Each decides which numbers are taken: what lies in shared memory from before hides none of them.
constexpr Mistake kMistakes[] = {
    {kClusters, "rows_of(i) * C::kVector", "1"},
    {kClusters, "merged<C::kChunks>(C::kChunks,", "merged<C::kChunks>(C::kChunks - 1,"},
    {kClusters, "__float_as_uint(own.squares)", "__float_as_uint(own.mean)"},
    {kClusters, "scale = {{m.mean}", "scale = {{own.mean}"},
    {kClusters, "start + (step + i) * kVectorBytes", "start + i * kVectorBytes"},
    {kClusters, "tile.offset(step)), true", "tile.offset(0)), true"},
};

constexpr MissingWait kUnordered[] = {
    {"CopiesNotWaitedFor",
     {kClusters, "copy_wait<kPieces - 1 - kPiece>", "copy_wait<kPieces - kPiece>"},
     "a race"},
    {"WordsNotWaitedFor", {kClusters, "mbarrier_wait(barrier, 0);", ""}, "a race"},
    {"NotAllWordsWaitedFor",
     {kClusters, "mbarrier_expect(barrier, kBytes)", "mbarrier_expect(barrier, kBytes - 8)"},
     "a race|a CTA that has ended"},
    {"PeersNotBegun",
     {kClusters, "cluster_barrier();  // now", "// now"},
     "a barrier that was not initialised|a race"},
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

constexpr char kMistakenProblem[] = "group_norm bf16 n=2 c=10 l=2052 g=2 weight bias silu";
constexpr char kMistakenConfig[] =
    "kChunks=4 kEarlyStart=0 kGroups=1 kPieces=4 kStreaming=0 kThreads=64";

TEST_F(GroupNormClusterGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  expect_seen(problem, config, kMistakes);
}

class GroupNormUnorderedClusterGpuTest : public GroupNormClusterGpuTest,
                                         public testing::WithParamInterface<MissingWait> {};

TEST_P(GroupNormUnorderedClusterGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  expect_fault(problem, config, GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(Waits, GroupNormUnorderedClusterGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::group_norm_cluster_gpu_test
