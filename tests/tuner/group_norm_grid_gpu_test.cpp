// tests/tuner/group_norm_grid_gpu_test.cpp -- Group norms by all CTAs of a device at once against
// the fp64 judge: waves, vectors in shared memory and in registers, both layouts; mistakes that the
// judge must see, and waits whose absence the emulated device must.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "generator/group_norm/kernel_spec.h"
#include "tests/tuner/judged_kernels.h"
#include "tuner/measure/gpu_timer.h"

namespace vitune::group_norm_grid_gpu_test {
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
    {"TwoTurns", "group_norm bf16 n=2 c=4 l=2048 g=1 weight bias silu",
     "kTurns=2 kChunks=4 kGroups=1 kPieces=2 kThreads=64"},
    {"FourTurns", "group_norm fp16 n=1 c=16 l=1024 g=4 weight bias mish",
     "kTurns=4 kChunks=4 kGroups=1 kPieces=2 kThreads=64"},
    {"TwoGroupsOfATurn", "group_norm bf16 n=4 c=8 l=1024 g=4",
     "kTurns=8 kChunks=2 kGroups=1 kPieces=2 kThreads=64"},
    {"VectorsInRegisters", "group_norm bf16 n=1 c=8 l=65536 g=4 weight bias silu",
     "kTurns=4 kChunks=2 kGroups=1 kPieces=4 kThreads=512"},
    {"Fp32", "group_norm fp32 n=2 c=4 l=1024 g=2 bias silu params=fp32",
     "kTurns=4 kChunks=2 kGroups=1 kPieces=2 kThreads=64"},
    {"MoreCtasThanLanes", "group_norm bf16 n=1 c=4 l=16384 g=2 weight silu params=fp32",
     "kTurns=2 kChunks=64 kGroups=1 kPieces=2 kThreads=32"},
    {"Nhwc", "group_norm bf16 n=2 c=64 l=128 g=8 nhwc weight bias silu",
     "kTurns=4 kChunks=4 kGroups=4 kPieces=2 kThreads=64"},
    {"NhwcOfTwoColumns", "group_norm fp16 n=1 c=64 l=256 g=4 nhwc weight bias mish params=fp32",
     "kTurns=2 kChunks=8 kGroups=2 kPieces=2 kThreads=64"},
    {"NhwcFp32", "group_norm fp32 n=1 c=128 l=128 g=16 nhwc weight silu",
     "kTurns=4 kChunks=4 kGroups=4 kPieces=2 kThreads=128"},
    {"ImagesOfOneGroup", "group_norm bf16 n=8 c=4 l=1024 g=1 weight bias silu",
     "kTurns=4 kChunks=4 kGroups=1 kPieces=2 kThreads=64"},
    {"NhwcOfWholeImages", "group_norm bf16 n=2 c=64 l=128 g=1 nhwc weight bias silu",
     "kTurns=2 kChunks=4 kGroups=1 kPieces=2 kThreads=64"},
    {"NhwcOfOneGroup", "group_norm bf16 n=1 c=64 l=512 g=4 nhwc",
     "kTurns=4 kChunks=4 kGroups=1 kPieces=2 kThreads=64"},
};

constexpr char kGrid[] = "group_norm/grid.cuh", kExchange[] = "group_norm/exchange.cuh";
constexpr char kMoments[] = "group_norm/even_moments.cuh";

// Each decides which numbers are taken: what lies in memory from before hides none of them.
constexpr Mistake kMistakes[] = {
    {kMoments, "(m.squares + squares)", "(m.squares + 0.9f * squares)"},
    {kMoments, "fmaf(0.5f, mean, 0.5f * m.mean)", "m.mean"},
    {kMoments, "origin + mean", "mean"},
    {kExchange, "group * kWarps + lane % kWarps", "group * kWarps"},
    {kExchange, "wait_for_words<kLanes>(", "// ("},
    {kExchange, "clear_word(", "// ("},
    {kGrid, "wave + 2 + is_later", "wave + 2"},
    {kGrid, "keep(next, kFirst<kOdd> + i)", ""},
    {kGrid, "piece = next;", ""},
    {kGrid, "between = tile_of(wave + 1)", "between = tile_of(wave)"},
    {kGrid, "write(held[i / kPieces], tile, kOddPlaces + i)",
     "write(kept(kSteps), tile, kOddPlaces + i)"},
    {"group_norm/activation_four.cuh", "of_first * under[1]", "of_first * under[0]"},
};

constexpr MissingWait kUnordered[] = {
    {"CopiesNotWaitedFor",
     {kGrid, "copy_wait<kLater + 1>();", "copy_wait<kLater + 2>();"},
     "a race"},
    {"SecondCopiesNotWaitedFor", {kGrid, "copy_wait<kLater>();", ""}, "a race"},
    {"PartsNotMet", {kExchange, "__syncthreads();", ""}, "a race"},
    {"PartsOfTwoTurnsInOnePlace",
     {kExchange, "shared + wave % 2 * kPartBytes", "shared"},
     "a race"},
    {"WordsPostedBeforeTheyAreClear",
     {kGrid, "wait_for_earlier_grids();  // the words are clear", ""},
     "a word that may be cleared"},
    {"AWordThatNobodyPosts",
     {kExchange, "if (lane == 0) post_word(", "if (lane == 0 && tile.chunk > 0) post_word("},
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

// With vectors in registers.
constexpr const char *kMistakenProblem = kCases[3].problem, *kMistakenConfig = kCases[3].config;

TEST_F(GroupNormGridGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  expect_seen(problem, config, kMistakes);
}

TEST_F(GroupNormGridGpuTest, MoreCtasThanRunAtOnceAreRefused) {
  const ProblemPtr problem = parse_problem("group_norm bf16 n=8000 c=2 l=512 g=1 weight bias silu");
  Verifier verifier = verifier_of(problem);
  const Config config = config_of("kTurns=2 kChunks=2 kGroups=1 kPieces=2 kThreads=32");
  EXPECT_THAT(verdict(verifier, *problem, config),
              testing::HasSubstr("8000 CTAs have to run at once"));
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

class GroupNormUnorderedGridGpuTest : public GroupNormGridGpuTest,
                                      public testing::WithParamInterface<MissingWait> {};

TEST_P(GroupNormUnorderedGridGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem(kMistakenProblem);
  const Config config = config_of(kMistakenConfig);
  expect_fault(problem, config, GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(Waits, GroupNormUnorderedGridGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::group_norm_grid_gpu_test
