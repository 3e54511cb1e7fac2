// tests/tuner/group_norm_grid_gpu_test.cpp -- Group norms by all CTAs of a device at once against
// the fp64 judge: vectors in shared memory, in registers and read again, tails, both layouts;
// mistakes that the judge must see, and waits whose absence the emulated device must.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "generator/group_norm/kernel_spec.h"
#include "tests/tuner/judged_kernels.h"
#include "tuner/measure/gpu_timer.h"

namespace vitune {
namespace {

struct GridCase {
  const char* name;
  const char* problem;
  const char* config;
};

void PrintTo(const GridCase& each, std::ostream* out) {
  *out << each.problem << ": " << each.config;
}

constexpr GridCase kCases[] = {
    {"EachKindOfPlace", "group_norm bf16 n=2 c=12 l=1024 g=2 weight bias silu",
     "kChunks=2 kGroups=1 kHeld=2 kKept=2 kThreads=64"},
    {"NoneInRegisters", "group_norm bf16 n=2 c=8 l=2048 g=1 weight bias mish",
     "kChunks=4 kGroups=1 kHeld=0 kKept=4 kThreads=64"},
    {"NoneReadAgain", "group_norm bf16 n=3 c=8 l=2048 g=2 bias silu",
     "kChunks=2 kGroups=1 kHeld=4 kKept=4 kThreads=64"},
    {"AllInSharedMemory", "group_norm bf16 n=2 c=8 l=1024 g=2 weight silu",
     "kChunks=2 kGroups=1 kHeld=0 kKept=4 kThreads=64"},
    {"ManyReadAgain", "group_norm bf16 n=1 c=11 l=2048 g=1 weight bias silu",
     "kChunks=2 kGroups=1 kHeld=2 kKept=10 kThreads=64"},
    {"Tails", "group_norm fp16 n=1 c=15 l=1000 g=3 weight bias mish",
     "kChunks=2 kGroups=1 kHeld=2 kKept=2 kThreads=64"},
    {"Fp32", "group_norm fp32 n=2 c=8 l=516 g=2 bias silu params=fp32",
     "kChunks=2 kGroups=1 kHeld=2 kKept=2 kThreads=96"},
    {"MoreCtasThanLanes", "group_norm bf16 n=1 c=8 l=2120 g=1 weight bias silu params=fp32",
     "kChunks=38 kGroups=1 kHeld=0 kKept=2 kThreads=32"},
    {"Nhwc", "group_norm bf16 n=2 c=32 l=200 g=4 nhwc weight bias silu",
     "kChunks=4 kGroups=4 kHeld=0 kKept=2 kThreads=64"},
    {"NhwcEven", "group_norm bf16 n=1 c=64 l=256 g=4 nhwc weight bias mish",
     "kChunks=4 kGroups=4 kHeld=2 kKept=4 kThreads=64"},
    {"NhwcOfIdleThreads", "group_norm fp16 n=1 c=40 l=300 g=5 nhwc weight bias silu params=fp32",
     "kChunks=4 kGroups=5 kHeld=2 kKept=2 kThreads=96"},
    {"NhwcFp32", "group_norm fp32 n=2 c=24 l=130 g=3 nhwc weight silu",
     "kChunks=3 kGroups=3 kHeld=2 kKept=2 kThreads=64"},
    {"NhwcOfOneGroup", "group_norm bf16 n=2 c=24 l=250 g=1 nhwc weight bias silu",
     "kChunks=4 kGroups=1 kHeld=0 kKept=2 kThreads=64"},
    {"NhwcWithoutParameters", "group_norm bf16 n=1 c=32 l=190 g=2 nhwc",
     "kChunks=4 kGroups=2 kHeld=0 kKept=2 kThreads=64"},
};

constexpr char kGrid[] = "group_norm/grid.cuh", kOnChip[] = "group_norm/on_chip.cuh";

// Each decides which numbers are taken: what lies in memory from before hides none of them.
constexpr Mistake kMistakes[] = {
    {kGrid, "GroupNormTile<C>::rows_of(chunk) * kRowNumbers", "1"},
    {kGrid, "squares += word[i].y + ", "squares += 0.9f * word[i].y + "},
    {kGrid, "wait_for_words<kWarpSize>(", "// ("},
    {kGrid, "clear_word(", "// ("},
    {kOnChip, "i < part(kPart + 1)", "i < part(kPart + 1) - kPieces"},
    {kOnChip, "write(held[i / kPieces], C::kKept + i)", "write(held[0], C::kKept + i)"},
    {kOnChip, "write(read(i), kFirstAgain + i)", "write(read(i), i)"},
    {kOnChip, "copy(j, kFirstAgain + j, once)", "copy(j, j, once)"},
    {"group_norm/activation_pair.cuh", "both * under_b", "both * under_a"},
};

// Waits, each left out, and what the emulated device says.
struct UnorderedGrid {
  const char* name;
  Mistake mistake;
  const char* fault;
};

void PrintTo(const UnorderedGrid& each, std::ostream* out) { *out << each.name; }

constexpr UnorderedGrid kUnordered[] = {
    {"CopiesNotWaitedFor",
     {kOnChip, "copy_wait<kParts - 1 - kPart>", "copy_wait<kParts - kPart>"},
     "a race"},
    {"SecondCopiesNotWaitedFor", {kOnChip, "copy_wait<0>();", ""}, "a race"},
    {"AWordThatNobodyPosts",
     {kGrid, "post_word(words(group) +", "if (tile.chunk > 0) post_word(words(group) +"},
     "wait for each other"},
};

class GroupNormGridGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major < 9) GTEST_SKIP() << "grids at once are of compute capability 9.0";
  }

  static Config config_of(const char* text) {
    Config config = Config::parse(text);
    config.set("kCluster", 0);
    config.set("kEarlyStart", 1);
    config.set("kPieces", 2);
    config.set("kStreaming", 1);
    return config;
  }
};

class GroupNormGridCasesGpuTest : public GroupNormGridGpuTest,
                                  public testing::WithParamInterface<GridCase> {};

TEST_P(GroupNormGridCasesGpuTest, MatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().config);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, GroupNormGridCasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

constexpr char kMistakenProblem[] = "group_norm bf16 n=1 c=60 l=1000 g=3 weight bias silu";
constexpr char kMistakenConfig[] = "kChunks=2 kGroups=1 kHeld=4 kKept=10 kThreads=64";

TEST_F(GroupNormGridGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  Verifier verifier = verifier_of(problem);
  ASSERT_EQ(verdict(verifier, *problem, config), "");
  for (const Mistake& mistake : kMistakes) {
    EXPECT_NE(verdict(verifier, *problem, config, &mistake), "") << mistake.others;
  }
}

TEST_F(GroupNormGridGpuTest, MoreCtasThanRunAtOnceAreRefused) {
  const ProblemPtr problem = parse_problem("group_norm bf16 n=4000 c=8 l=128 g=1 weight bias silu");
  Verifier verifier = verifier_of(problem);
  const Config config = config_of("kChunks=2 kGroups=1 kHeld=0 kKept=2 kThreads=32");
  EXPECT_THAT(verdict(verifier, *problem, config), testing::HasSubstr("(720)"));
}

// Called after each other, and from a graph, where nobody touches the words but the kernels.
TEST_F(GroupNormGridGpuTest, IsTimedAsOthersAre) {
  const ProblemPtr problem = parse_problem(kCases[0].problem);
  const Config config = config_of(kCases[0].config);
  const CompileResult compiled =
      compiler_->compile(problem->op().request(*problem, config, device_.arch()));
  ASSERT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
  const CudaModule module(*driver_, compiled.cubin);
  Verifier verifier = verifier_of(problem);
  Workload& workload = verifier.timing_workload();
  const BoundPlan launch = workload.bind(prepare_plan(module, workload.problem(), config, device_));
  GpuTimer timer(*context_, *stream_, *kernels_, device_);
  const Measurement figures = measure(timer, [&] { launch(*stream_); }, {3, 5, 0.1, 3});
  EXPECT_GT(figures.cold.median_us, 0);
  EXPECT_GT(figures.warm.median_us, 0);
  EXPECT_EQ(verifier.verify(module, config).status, TrialStatus::kOk);
}

// A fault ends a process's use of the device: each launches in a process of its own.
class GroupNormUnorderedGridGpuTest : public GroupNormGridGpuTest,
                                      public testing::WithParamInterface<UnorderedGrid> {};

TEST_P(GroupNormUnorderedGridGpuTest, IsAFaultOnTheEmulatedDevice) {
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

INSTANTIATE_TEST_SUITE_P(Waits, GroupNormUnorderedGridGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune
