// tests/tuner/linear_weight_grad_split_m_gpu_test.cpp -- Weight gradients of the family
// sm90_split_m against the fp64 judge: clusters of every size, tails, parts without a step;
// mistakes that the judge must see; and each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "generator/linear_weight_grad/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_weight_grad_split_m_gpu_test {
namespace {

struct Tile {
  std::int64_t m, n, stages, parts, groups, shares = 0;  // of the sums of dy's rows
};

Config config_of(const Tile& t) {
  return {
      {"kFamily", 4},       {"kBlockM", t.m},      {"kBlockN", t.n}, {"kStages", t.stages},
      {"kSplits", t.parts}, {"kGroups", t.groups}, {"kPair", 0},     {"kSharedRowSums", t.shares}};
}

struct SplitMCase {
  const char* name;
  const char* problem;
  Tile tile;
};

void PrintTo(const SplitMCase& each, std::ostream* out) { *out << each.problem; }

// Ragged in all extents; parts of more steps than slots, of differing numbers of steps, of none.
const SplitMCase kCases[] = {
    {"TwoParts", "linear_weight_grad bf16 m=330 n=136 k=200", {64, 64, 2, 2, 1}},
    {"ABias", "linear_weight_grad bf16 m=650 n=72 k=200 bias out=fp32", {64, 128, 2, 4, 1}},
    {"EightParts", "linear_weight_grad fp16 m=700 n=136 k=136 bias dy=@144", {128, 128, 2, 8, 2}},
    {"ThreePartsAndWarpgroups",
     "linear_weight_grad bf16 m=400 n=200 k=200 bias out=fp32",
     {192, 192, 4, 3, 3}},
    {"SixParts", "linear_weight_grad bf16 m=500 n=72 k=200 bias add", {64, 192, 2, 6, 1}},
    {"Added",
     "linear_weight_grad bf16 m=270 n=72 k=328 bias add out=fp32 x=@336",
     {64, 64, 3, 2, 1}},
    {"TwoBlocksOfAGroup", "linear_weight_grad fp16 m=300 n=264 k=72 bias", {256, 64, 2, 2, 2}},
    {"WideTiles",
     "linear_weight_grad bf16 m=270 n=130 k=264 bias out=fp32 dy=@136",
     {128, 256, 2, 2, 2}},
    {"FivePartsOfUnequalSlices",
     "linear_weight_grad bf16 m=700 n=72 k=136 bias out=fp32",
     {64, 64, 3, 5, 1}},
    {"SevenParts", "linear_weight_grad fp16 m=900 n=136 k=264 bias add", {128, 128, 2, 7, 2, 1}},
    {"SumsInTheRing",
     "linear_weight_grad bf16 m=500 n=200 k=392 bias out=fp32",
     {192, 192, 4, 2, 3}},
    {"SumsInTheRingAndShares",
     "linear_weight_grad bf16 m=700 n=264 k=264 bias add out=fp32",
     {128, 256, 4, 3, 2, 1}},
    {"Shares",
     "linear_weight_grad bf16 m=650 n=72 k=328 bias out=fp32 dy=@80",
     {64, 64, 3, 4, 1, 1}},
    {"PartsWithoutAStep",
     "linear_weight_grad bf16 m=130 n=72 k=72 bias add out=fp32",
     {64, 64, 2, 8, 1}},
};

constexpr char kGemm[] = "linear_weight_grad/gemm_sm90.cuh";
constexpr char kSplit[] = "linear_weight_grad/split_m_sm90.cuh";
constexpr Tile kMistaken = {64, 128, 2, 4, 1};
constexpr Mistake kMistakes[] = {
    // A step twice, a step short.
    {kSplit, "int(i64(part_ + 1) * steps_ / T::kParts)",
     "min(steps_, int(i64(part_ + 1) * steps_ / T::kParts) + 1)"},
    {kSplit, "int(i64(part_) * steps_ / T::kParts)",
     "int(i64(part_) * steps_ / T::kParts) + part_ / 3"},
    // Another slice, another part, a part left out, another tile, other rows.
    {kSplit, "&d[block][4 * first + 2 * i]", "&d[block][2 * i]"},
    {kSplit, "at + part * kStep", "at"},
    {kSplit, "part < T::kParts; ++part) {\n      const uint2",
     "part + 1 < T::kParts; ++part) {\n      const uint2"},
    {kSplit, "8 * first + lane", "lane"},
    {kSplit, "tile % u32(across_)", "0"},
    {kSplit, "warp % 4 * 16 + lane / 4", "warp % 4 * 8 + lane / 4"},
    {kSplit, "i % 2 * 8, column", "0, column"},
    {kSplit, "__float_as_uint(two[1]), there", "__float_as_uint(two[0]), there"},
    // The sums of dy's rows: of every tile, of the upper half alone.
    {kSplit, "__float_as_uint(rows[block][2]), there", "__float_as_uint(rows[block][0]), there"},
    {kSplit, "block * 64 + half * 8", "block * 64 + half * 4"},
    {kGemm, "rows[block][i] = 0.f;", "rows[block][i] = 1.f;"},
};
// Of sums that tiles share, parts of unequal slices, and sums in the place of the ring.
constexpr Tile kSharing = {128, 256, 4, 3, 2, 1};
constexpr Mistake kMistakesOfShares[] = {
    {kSplit, "step % across_ == n_", "true"},
    {kSplit, "step % across_ == n_", "step % across_ == n_ && step + 1 < steps_"},
    {kSplit, "part_ * across_ + n_", "part_ * across_"},
    {kSplit, "rows[i / 2][2 * (i % 2)]", "rows[i / 2][0]"},
    {kSplit, "i64(tile.column_part()) * p.n + row", "i64(tile.column_part()) * p.n + row0"},
    {kSplit, "8 * first + lane", "8 * tile.part() * T::kMostChunks + lane"},
    {kSplit, "d[block][4 * first + 2 * i]", "d[block][4 * to * T::kMostChunks + 2 * i]"},
};

// A wait that orders accesses, left out, and the words of the fault that it makes.
constexpr MissingWait kUnordered[] = {
    {"SumsNotWaitedFor", {kSplit, "mbarrier_wait(sums.barrier(), 0);", ""}, "a race|erred by"},
    {"PeersNotMet", {kSplit, "cluster_barrier();  // now", "// now"}, "cluster|barrier|a race"},
    {"SlotsNotWaitedFor",
     {kGemm, "mbarrier_wait(ring.full(at.index), at.phase);", ""},
     "a race|never ends"},
    {"RingsStillRead", {kSplit, "mbarrier_wait(rings_free(), 0);", ""}, "a race"},
    {"LastSlotStillRead", {kGemm, "wgmma_wait<0>();", "wgmma_wait<1>();"}, "erred by"},
    {"RowSumsNotCounted",
     {kSplit, "(tile.finishes_rows() ? T::kRowSumBytes : 0)", "0"},
     "barrier|a race|erred by"},
};

class LinearWeightGradSplitMGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90_split_m is for compute capability 9.0";
  }
};

class LinearWeightGradSplitMCasesGpuTest : public LinearWeightGradSplitMGpuTest,
                                           public testing::WithParamInterface<SplitMCase> {};

TEST_P(LinearWeightGradSplitMCasesGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().tile);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearWeightGradSplitMCasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearWeightGradSplitMGpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=700 n=72 k=264 bias out=fp32");
  const Config config = config_of(kMistaken);
  expect_seen(problem, config, kMistakes);
}

TEST_F(LinearWeightGradSplitMGpuTest, MistakesOfSharesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=800 n=136 k=520 bias out=fp32");
  const Config config = config_of(kSharing);
  expect_seen(problem, config, kMistakesOfShares);
}

class LinearWeightGradSplitMUnorderedGpuTest : public LinearWeightGradSplitMGpuTest,
                                               public testing::WithParamInterface<MissingWait> {};

TEST_P(LinearWeightGradSplitMUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=600 n=136 k=264 bias out=fp32");
  const bool in_ring = std::string_view(GetParam().name) == "RingsStillRead";
  expect_fault(problem, config_of(in_ring ? kSharing : kMistaken), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearWeightGradSplitMUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::linear_weight_grad_split_m_gpu_test
