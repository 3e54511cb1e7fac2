// tests/tuner/linear_sm90_gpu_test.cpp -- The family sm90 of linear layers against the fp64 judge:
// every schedule and every fact of a problem, and mistakes and missing waits that must be seen.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_sm90_gpu_test {
namespace {

// Tunables in the order of linear_sm90_parameters(), but for kSplits, which has one value.
struct Tile {
  std::int64_t m, n, stages, groups, schedule, pair, lead;
  std::int64_t wide_panels = 0;
};

Config config_of(const Tile& t) {
  return {{"kFamily", 1},
          {"kBlockM", t.m},
          {"kBlockN", t.n},
          {"kStages", t.stages},
          {"kSplits", 1},
          {"kGroups", t.groups},
          {"kSchedule", t.schedule},
          {"kPair", t.pair},
          {"kLead", t.lead},
          {"kWidePanels", t.wide_panels}};
}

struct Sm90Case {
  const char* name;
  const char* problem;
  Tile tile;
};

void PrintTo(const Sm90Case& each, std::ostream* out) { *out << each.problem; }

// Ragged in all extents; more tiles than the emulated device's four SMs take at once, and more
// steps than slots.
const Sm90Case kCases[] = {
    {"SharedTilesOfAPair", "linear bf16 m=410 n=200 k=200 bias act=gelu", {128, 96, 3, 2, 0, 1, 1}},
    {"ThreeWarpgroups",
     "linear bf16 m=390 n=392 k=72 bias scale residual",
     {192, 192, 3, 3, 0, 1, 1}},
    {"LeadOfTwo", "linear bf16 m=200 n=264 k=328 norm=layer bias", {192, 64, 4, 3, 0, 1, 2}},
    {"PingPongAlongM",
     "linear bf16 m=650 n=136 k=136 norm=layer bias act=gelu",
     {128, 64, 3, 2, 1, 2, 0}},
    {"PingPongWithAResidual",
     "linear fp16 m=300 n=104 k=200 scale residual=@112 out=@112",
     {64, 96, 3, 2, 1, 0, 0}},
    {"PingPongOfAPair",
     "linear bf16 m=400 n=200 k=264 norm=layer bias act=gelu",
     {128, 64, 4, 2, 1, 1, 0}},
    {"PingPongWithoutABias",
     "linear fp16 m=300 n=200 k=200 norm=rms act=silu",
     {128, 96, 3, 2, 1, 2, 0}},
    {"ResidualsByTheWay",
     "linear bf16 m=1300 n=408 k=200 bias residual",
     {128, 192, 5, 2, 1, 0, 0}},
    {"ResidualsAndGaps",
     "linear bf16 m=520 n=408 k=72 bias residual rows=65+2",
     {128, 192, 5, 2, 1, 0, 0}},
    {"ResidualsOfOnePanel", "linear bf16 m=300 n=104 k=136 bias residual", {64, 32, 3, 1, 0, 0, 0}},
    {"TwoBlocksOfRows",
     "linear bf16 m=520 n=72 k=200 bias residual params=fp32",
     {256, 64, 3, 2, 0, 2, 1}},
    {"OneWarpgroup", "linear bf16 m=200 n=240 k=264 bias act=quick_gelu", {64, 112, 3, 1, 0, 0, 0}},
    {"NarrowPanelsWithAResidual",
     "linear bf16 m=150 n=240 k=136 bias residual act=relu",
     {64, 112, 3, 1, 0, 1, 0}},
    {"OddSteps", "linear fp16 m=70 n=40 k=83 bias act=gelu x=@88 w=@88", {64, 32, 3, 1, 0, 0, 0}},
    {"RepeatedResidualAndGaps",
     "linear bf16 m=294 n=72 k=72 bias residual period=98 rows=98+1 act=gelu_tanh",
     {128, 64, 3, 2, 0, 1, 1}},
    {"RepeatedResidual",
     "linear fp16 m=294 n=40 k=72 scale residual=@43 period=98",
     {64, 64, 3, 1, 0, 0, 0}},
    {"Gaps", "linear bf16 m=130 n=40 k=24 bias rows=65+2", {128, 64, 3, 2, 1, 0, 0}},
    {"AllOfTheEpilogue",
     "linear bf16 m=150 n=72 k=584 norm=layer bias act=gelu scale residual",
     {64, 64, 3, 1, 0, 0, 0}},
    {"NoLeadAlongM", "linear fp16 m=260 n=72 k=584 bias", {128, 64, 3, 2, 0, 2, 0}},
    {"WidePanels",
     "linear bf16 m=390 n=392 k=72 norm=layer bias act=gelu",
     {192, 192, 3, 3, 0, 1, 1, 1}},
    {"WidePanelsInTurns", "linear fp16 m=650 n=136 k=136 bias", {128, 64, 3, 2, 1, 2, 0, 1}},
    {"WidePanelsByTheWay",
     "linear bf16 m=1300 n=408 k=200 bias residual",
     {128, 128, 4, 2, 1, 0, 0, 1}},
    {"WidePanelsInTurnsOfAPair",
     "linear bf16 m=400 n=264 k=264 bias act=gelu",
     {128, 128, 3, 2, 1, 1, 0, 1}},
    {"WidePanelsWithAResidual",
     "linear bf16 m=520 n=136 k=200 bias residual params=fp32",
     {256, 128, 3, 2, 0, 2, 1, 1}},
    {"WidePanelsAndGaps",
     "linear bf16 m=294 n=72 k=72 bias residual period=98 rows=98+1",
     {128, 64, 3, 2, 0, 1, 1, 1}},
    {"OneRow", "linear bf16 m=1 n=248 k=192 bias out=@256", {64, 64, 3, 1, 0, 1, 0}},
};

constexpr char kGemm[] = "linear/gemm_sm90.cuh", kEpilogue[] = "linear/epilogue_sm90.cuh";
constexpr Tile kMistaken = {128, 64, 3, 2, 0, 1, 1};
constexpr Mistake kMistakes[] = {
    {kGemm, "maps.x, full, k, tile.row() + half", "maps.x, full, k, tile.row()"},
    {kGemm, "T::kTransposed ? 16 * 128 * i : 32 * i", "0"},
    {kGemm, "accumulate || i > 0", "true"},
    {kGemm, "(store + i) * T::kStoreColumns", "panel * T::kStoreColumns"},
    {kEpilogue, "row >> 1 & 3", "row >> 2 & 3"},
    {kEpilogue, "block * 64 + warp * 16", "block * 64 + warp * 8"},
    {kEpilogue, "4 * chunk + 2 * half + 1", "4 * chunk + 2 * half"},
    {kEpilogue, "fmaf(-shift[block][half]", "fmaf(-0.9f * shift[block][half]"},
    {kEpilogue, "fmaf(y, pair.scale[i], added)", "fmaf(y, pair.scale[1 - i], added)"},
    {kEpilogue, "4 * first + lane % 4", "4 * first"},
    {"linear/tiles_sm90.cuh", "n * 2 + rank_", "n * 2"},
};

// In ping-pong, with room for all of a tile's residuals; twelve of a warp and room for three.
constexpr Tile kStaged = {128, 64, 3, 2, 1, 0, 0}, kByTheWay = {128, 192, 5, 2, 1, 0, 0};
constexpr Mistake kStagedMistakes[] = {
    {kEpilogue, "number / T::kRowBlocks * T::kStoreColumns", "T::kStoreColumns"},
    {kEpilogue, "row0 + block_row(number % T::kRowBlocks)", "row0 + block_row(0)"},
};

// A wait that orders accesses, left out, and the words of the fault that it makes.
struct UnorderedSm90 {
  const char* name;
  Mistake mistake;
  const char* fault;
  const char* asks = "bias residual";
  Tile tile = kMistaken;
  int k = 72;  // two slots of x and w and one of the residual, for a ring of three
};

void PrintTo(const UnorderedSm90& each, std::ostream* out) { *out << each.mistake.words; }

constexpr UnorderedSm90 kUnordered[] = {
    {"SlotsNotWaitedFor",
     {kGemm, "mbarrier_wait(shared.full(at.index), at.phase);\n      multiply(", "multiply("},
     "a race"},
    {"SlotsStillRead", {kGemm, "      wgmma_wait<1>();\n", "      wgmma_wait<2>();\n"}, "a race"},
    {"SlotsNotEmpty",
     {kGemm, "shared.wait_for_empty(at);\n      if (T::kRingResidual)", "if (T::kRingResidual)"},
     "a race"},
    {"ResidualNotWaitedFor",
     {kEpilogue, "mbarrier_wait(shared.full(at.index), at.phase);", ""},
     "a race"},
    {"ResidualWithoutAFence",
     {kGemm, "if (T::kRingResidual) fence_proxy_async();", ""},
     "without fence.proxy.async",
     "bias residual",
     kMistaken,
     136},
    {"StagedResidualNotWaitedFor",
     {kEpilogue, "wait_for_residual(number);\n        } else", "} else"},
     "a race",
     "bias residual",
     kStaged},
    {"ResidualsOverStagingStillStored",
     {kEpilogue, "wait_for_free_staging<0>();", ""},
     "a race",
     "bias residual",
     kStaged},
    {"NextResidualsOverStagingStillStored",
     {kEpilogue, "wait_for_free_staging<kBulkStores>();", ""},
     "a race",
     "bias residual",
     kByTheWay},
    {"ResidualsOverStagingWithoutAFence",
     {kEpilogue, "if (T::kRowMap || T::kMomentsWritten > 0 || kNumbers) fence_proxy_async();", ""},
     "without fence.proxy.async",
     "bias residual rows=65+2",
     kStaged},
    {"StagingStillRead", {kEpilogue, "if (lane == 0) wait_for_staging(number);", ""}, "a race"},
    {"StagingNotWaitedFor",
     {kEpilogue, "fence_proxy_async();\n      __syncwarp();", "fence_proxy_async();"},
     "a race"},
    {"StagingWithoutAFence",
     {kEpilogue, "fence_proxy_async();\n      __syncwarp();", "__syncwarp();"},
     "without fence.proxy.async"},
    {"ColumnsNotWaitedFor",
     {kEpilogue, "% kGroupThreads);\n    group_barrier<T::kGroups, kGroupThreads>(group);\n  }",
      "% kGroupThreads);\n  }"},
     "a race"},
    {"ColumnsStillRead",
     {kEpilogue, "group_barrier<T::kGroups, kGroupThreads>(group);  // those", "// those"},
     "a race"},
    {"StoresNotWaitedFor",
     {kGemm, "threadIdx.x % kWarpSize == 0) store_wait_read<0>();", "false) {\n  }"},
     "still read ends"},
    {"PeersNotWaitedFor",
     {kGemm, "T::kCluster > 1 && i < T::kStages", "false"},
     "a CTA that has ended",
     "bias residual",
     {128, 64, 3, 2, 0, 1, 0}},
};

class LinearSm90GpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  }
};

class LinearSm90CasesGpuTest : public LinearSm90GpuTest,
                               public testing::WithParamInterface<Sm90Case> {};

TEST_P(LinearSm90CasesGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().tile);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearSm90CasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearSm90GpuTest, MistakesAreSeen) {
  // More tiles than CTAs at once, and few steps: what is left of the tile before is seen.
  const std::string rows = device_.sm_count < 16 ? "270" : "27000";
  const ProblemPtr problem = parse_problem("linear bf16 m=" + rows +
                                           " n=136 k=152 norm=layer bias act=gelu scale residual");
  expect_seen(problem, config_of(kMistaken), kMistakes);
  expect_seen(problem, config_of(kStaged), kStagedMistakes);
}

class LinearSm90UnorderedGpuTest : public LinearSm90GpuTest,
                                   public testing::WithParamInterface<UnorderedSm90> {};

TEST_P(LinearSm90UnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem(
      "linear bf16 m=520 n=264 k=" + std::to_string(GetParam().k) + " " + GetParam().asks);
  const Config config = config_of(GetParam().tile);
  expect_fault(problem, config, GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearSm90UnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

// Tuning begins with these configs.
TEST_F(LinearSm90GpuTest, DefaultsMatchTheReference) {
  for (const char* const text : {"linear bf16 m=394 n=200 k=392 bias act=gelu norm=layer",
                                 "linear bf16 m=197 n=96 k=776 bias scale residual"}) {
    const ProblemPtr problem = parse_problem(text);
    const ParameterSpace space = linear().space(*problem, device_);
    Verifier verifier = verifier_of(problem);
    for (const Config& config : linear().defaults(*problem, device_, space)) {
      if (linear().family(config) != "sm90") continue;
      EXPECT_EQ(verdict(verifier, *problem, config), "") << text << ' ' << config.text();
    }
  }
}

}  // namespace
}  // namespace vitune::linear_sm90_gpu_test
