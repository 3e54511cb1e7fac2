// tests/tuner/linear_weight_grad_sm90_gpu_test.cpp -- Weight gradients of the family sm90 against
// the fp64 judge: pairs, parts, tails and every fact of a problem; mistakes that the judge must
// see; and each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/linear_weight_grad/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_weight_grad_sm90_gpu_test {
namespace {

struct Tile {
  std::int64_t m, n, stages, splits, groups, pair;
};

Config config_of(const Tile& t) {
  return {{"kFamily", 1},        {"kBlockM", t.m},      {"kBlockN", t.n}, {"kStages", t.stages},
          {"kSplits", t.splits}, {"kGroups", t.groups}, {"kPair", t.pair}};
}

struct Sm90Case {
  const char* name;
  const char* problem;
  Tile tile;
};

void PrintTo(const Sm90Case& each, std::ostream* out) { *out << each.problem; }

// Ragged in all extents; more units than the emulated device's four SMs take at once, and more
// steps than slots.
const Sm90Case kCases[] = {
    {"OneWarpgroup", "linear_weight_grad bf16 m=330 n=136 k=200", {64, 64, 3, 1, 1, 0}},
    {"DirectWithABias", "linear_weight_grad bf16 m=330 n=72 k=200 bias", {64, 128, 3, 1, 1, 0}},
    {"Parts", "linear_weight_grad bf16 m=650 n=136 k=200 bias out=fp32", {128, 64, 2, 3, 2, 0}},
    {"ThreeWarpgroups",
     "linear_weight_grad bf16 m=200 n=200 k=392 bias out=fp32",
     {192, 192, 3, 2, 3, 1}},
    {"ThreeWarpgroupsAlongN",
     "linear_weight_grad fp16 m=200 n=390 k=200 bias dy=@392",
     {192, 192, 3, 2, 3, 2}},
    {"PairAlongK",
     "linear_weight_grad bf16 m=270 n=72 k=328 bias scale add out=fp32",
     {64, 64, 3, 2, 1, 1}},
    {"PairAlongN",
     "linear_weight_grad bf16 m=270 n=200 k=136 bias scale add params=fp32",
     {64, 128, 3, 2, 1, 2}},
    {"WideTiles",
     "linear_weight_grad bf16 m=140 n=130 k=264 bias add out=fp32 dy=@136",
     {128, 256, 2, 1, 2, 2}},
    {"TwoBlocksOfRows",
     "linear_weight_grad fp16 m=140 n=264 k=136 bias scale",
     {256, 128, 2, 2, 2, 1}},
    {"OneGroupOfTwoBlocks",
     "linear_weight_grad bf16 m=200 n=136 k=72 bias out=fp32",
     {128, 64, 3, 2, 1, 0}},
    {"ManyParts", "linear_weight_grad bf16 m=1100 n=40 k=96 bias out=fp32", {64, 128, 3, 16, 1, 0}},
    {"PartsWithoutASum",
     "linear_weight_grad bf16 m=600 n=40 k=264 scale out=fp32 dy=@48",
     {64, 64, 2, 4, 1, 1}},
    {"Strided",
     "linear_weight_grad bf16 m=150 n=100 k=80 bias dy=@104 x=@96",
     {64, 64, 3, 2, 1, 0}},
    {"OneRow", "linear_weight_grad bf16 m=1 n=100 k=80 bias out=fp32", {64, 64, 3, 2, 1, 1}},
};

constexpr char kGemm[] = "linear_weight_grad/gemm_sm90.cuh";
constexpr Tile kMistaken = {64, 64, 3, 2, 1, 1};
constexpr Mistake kMistakes[] = {
    {"collective/tma_tile.cuh", "row + half, 3)", "row, 3)"},
    {kGemm, "descriptor_at(x, kStepBytes * i)", "descriptor_at(x, 0)"},
    {kGemm, "d[block][i] = 0.f;", "d[block][i] = 1.f;"},
    {kGemm, "rows[block][i] = 0.f;", "if (unit.split() == 0) rows[block][i] = 0.f;"},
    // The sums of dy's rows in every tile, in the first alone, not of the last step.
    {kGemm, "return step % across_ == n_;", "return true;"},
    {kGemm, "return step % across_ == n_;", "return n_ == 0 && step % across_ == n_;"},
    {kGemm, "return step % across_ == n_;", "return step % across_ == n_ && step + 1 < steps_;"},
    {kGemm, "return split_ * across_ + n_;", "return split_ * across_;"},
    // A step twice, a step short.
    {kGemm, "int(i64(split_ + 1) * steps_ / splits_)",
     "min(steps_, int(i64(split_ + 1) * steps_ / splits_) + 1)"},
    {kGemm, "int(i64(split_) * steps_ / splits_)", "int(i64(split_) * steps_ / splits_) + split_"},
    {kGemm, "warp % 4 * 16 + lane / 4", "warp % 4 * 8 + lane / 4"},
    {kGemm, "d[block][4 * chunk + 2 * half + 1]", "d[block][4 * chunk + 2 * half]"},
    {kGemm, "n * 2 + rank_", "n * 2"},
};

// A wait that orders accesses, left out, and the words of the fault that it makes.
struct UnorderedSm90 {
  const char* name;
  Mistake mistake;
  const char* fault;
};

void PrintTo(const UnorderedSm90& each, std::ostream* out) { *out << each.mistake.words; }

constexpr UnorderedSm90 kUnordered[] = {
    {"SlotsNotWaitedFor", {kGemm, "mbarrier_wait(ring.full(at.index), at.phase);", ""}, "a race"},
    {"SlotsStillRead", {kGemm, "wgmma_wait<1>();", "wgmma_wait<2>();"}, "a race"},
    {"SlotsNotEmpty",
     {kGemm, "      ring.wait_for_empty(at);\n      mbarrier_expect", "      mbarrier_expect"},
     "a race"},
    {"LastSlotStillRead", {kGemm, "wgmma_wait<0>();", "wgmma_wait<1>();"}, "erred by"},
    {"OnesWithoutAFence",
     {kGemm, "kOnes);\n    fence_proxy_async();", "kOnes);"},
     "without fence.proxy.async"},
    {"OnesNotWaitedFor",
     {kGemm,
      "if (threadIdx.x == 0) ring.init();\n  if constexpr (T::kBias) ring.write_ones();\n  "
      "meet_peers<T>();",
      "if (threadIdx.x == 0) ring.init();\n  meet_peers<T>();\n  if constexpr (T::kBias) "
      "ring.write_ones();"},
     "a race"},
    {"PeersNotWaitedFor",
     {kGemm, "T::kCluster > 1 && i < T::kStages", "false"},
     "a CTA that has ended"},
};

class LinearWeightGradSm90GpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  }
};

class LinearWeightGradSm90CasesGpuTest : public LinearWeightGradSm90GpuTest,
                                         public testing::WithParamInterface<Sm90Case> {};

TEST_P(LinearWeightGradSm90CasesGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().tile);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearWeightGradSm90CasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearWeightGradSm90GpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=340 n=72 k=264 bias out=fp32");
  const Config config = config_of(kMistaken);
  expect_seen(problem, config, kMistakes);
}

class LinearWeightGradSm90UnorderedGpuTest : public LinearWeightGradSm90GpuTest,
                                             public testing::WithParamInterface<UnorderedSm90> {};

TEST_P(LinearWeightGradSm90UnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=500 n=136 k=264 bias out=fp32");
  expect_fault(problem, config_of(kMistaken), GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearWeightGradSm90UnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::linear_weight_grad_sm90_gpu_test
