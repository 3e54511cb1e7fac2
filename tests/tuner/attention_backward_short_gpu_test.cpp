// tests/tuner/attention_backward_short_gpu_test.cpp -- Gradients of attention of the family
// sm80_short against the fp64 judge: warps with one group of keys and with several, tails, causal
// masks, biases that all, windows, heads or nobody shares; mistakes that the judge must see; and
// each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <span>
#include <string>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_backward_short_gpu_test {
namespace {

struct Blocks {
  std::int64_t warps, buffers, ctas;
};

Config config_of(const Problem& problem, const Blocks& b) {
  const GemmFamilies all = attention_backward_families();
  const auto own = std::ranges::find(all, &attention_backward_short());
  Config config = {{"kFamily", own - all.begin()},
                   {"kWarps", b.warps},
                   {"kBuffers", b.buffers},
                   {"kMinCtas", b.ctas}};
  // Tunables of other families.
  for (const Parameter& parameter : problem.op().family_of(config).parameters(problem)) {
    if (!config.find(parameter.name)) config.set(parameter.name, 0);
  }
  return config;
}

struct ShortCase {
  const char* name;
  const char* problem;  // what follows the operator's name
  Blocks blocks;
};

void PrintTo(const ShortCase& each, std::ostream* out) { *out << each.problem; }

std::string text_of(const char* problem) { return std::string("attention_backward ") + problem; }

// Odd and even numbers of tiles on both sides, a warp whose last group has no keys, head sizes of
// whole and half steps, copies of every width.
const ShortCase kCases[] = {
    {"ClipImages", "bf16 b=3 h=3 n=50 d=64 layout=packed", {4, 1, 3}},
    {"ClipImagesTwoGroups", "bf16 b=3 h=3 n=50 d=64 layout=packed", {2, 1, 4}},
    {"ClipTexts", "bf16 b=2 h=2 n=77 d=64 causal", {5, 1, 2}},
    {"ClipTextsUnevenWarps", "fp16 b=2 h=2 n=77 d=32 causal", {3, 1, 1}},
    {"NextOnItsWay", "bf16 b=60 h=4 n=33 d=32", {2, 2, 3}},
    {"SwinOneWarp", "bf16 b=3 h=2 n=30 d=32", {1, 2, 2}},
    {"WholeTiles", "bf16 b=4 h=6 n=64 d=32 layout=packed", {4, 2, 3}},
    {"OneToken", "bf16 b=2 h=2 n=1 d=16", {1, 1, 1}},
    {"OneKey", "bf16 b=1 h=2 nq=33 nk=1 d=16", {1, 1, 1}},
    {"OneQuery", "bf16 b=1 h=2 nq=1 nk=66 d=16", {5, 1, 1}},
    {"FewKeysManyQueries", "fp16 b=1 h=2 nq=100 nk=20 d=40", {2, 1, 1}},
    {"ManyKeysFewQueries", "bf16 b=1 h=2 nq=20 nk=100 d=24 causal", {4, 1, 1}},
    {"HeadsOf8", "bf16 b=1 h=2 n=40 d=8", {3, 1, 1}},
    {"HeadsOf72", "bf16 b=1 h=2 nq=60 nk=44 d=72 align=8", {3, 2, 1}},
    {"HeadsOf80", "fp16 b=1 h=2 n=57 d=80 align=4", {4, 1, 2}},
    {"HeadsOf128", "bf16 b=1 h=2 n=50 d=128 align=2", {4, 1, 2}},
    {"ManyRows", "bf16 b=1 h=2 n=127 d=32", {8, 1, 1}},
    {"Strided", "bf16 b=2 h=2 n=37 d=64 do=bhnd dq=bhnd dk=bhnd dv=bhnd", {3, 1, 3}},
    {"Mask", "bf16 b=4 h=2 nq=41 nk=50 d=32 mask=bool:2x1x41x50", {2, 1, 2}},
    {"BiasOfAll", "bf16 b=5 h=2 n=49 d=32 bias=bf16:1x2x49x49", {4, 1, 3}},
    {"BiasOfKeys", "fp16 b=2 h=2 nq=20 nk=52 d=72 bias=fp16:2x2x1x52", {2, 1, 2}},
    {"BiasOfEach", "bf16 b=3 h=2 n=33 d=16 bias=fp32:3x2x33x33 causal", {3, 2, 2}},
    {"DbiasOfAll", "bf16 b=9 h=2 n=49 d=32 bias=bf16:1x2x49x49 dbias", {4, 1, 3}},
    {"DbiasTwoGroups", "bf16 b=120 h=2 n=33 d=32 bias=bf16:1x2x33x33 dbias=fp32", {2, 2, 3}},
    {"DbiasOfHeads", "fp16 b=6 h=3 n=30 d=32 bias=fp32:2x1x30x30 dbias", {2, 1, 2}},
    {"DbiasOfAllMaskOfWindows",
     "bf16 b=120 h=1 n=33 d=16 bias=bf16:33x33 mask=bool:4x1x33x33 dbias",
     {3, 1, 2}},
    {"DbiasOfEach",
     "bf16 b=2 h=2 nq=24 nk=40 d=48 bias=bf16:2x2x24x40 mask=bool:24x40 dbias",
     {3, 1, 2}},
};

constexpr char kShort[] = "attention_backward/short_sm80.cuh";
constexpr char kScores[] = "attention_backward/scores_short.cuh";
constexpr char kProducts[] = "attention_backward/products_short.cuh";
constexpr char kDbias[] = "attention_backward/dbias.cuh";

// Odd numbers of tiles on both sides, a half step of the head's columns.
constexpr char kPlain[] = "bf16 b=2 h=3 nq=37 nk=51 d=24";
constexpr Blocks kTwoGroups = {2, 1, 2};
constexpr Mistake kPlainMistakes[] = {
    // Scales and units.
    {kShort, "(sums, 1.f, p.dv", "(sums, call.scale, p.dv"},
    {kShort, "(sums, call.scale, p.dk", "(sums, 1.f, p.dk"},
    {kShort, "(sums, call.scale, p.dq", "(sums, 1.f, p.dq"},
    {kScores, "1.f : kLog2E", "1.f : 1.f"},
    {kScores, "scale_log2 = scale * kLog2E", "scale_log2 = scale"},
    // Queries without keys, keys past the end.
    {kScores, "log_sum == minus_infinity() || !is_there", "!is_there"},
    {kScores, "row < left ? ds[group][j][half] : 0u", "ds[group][j][half]"},
    // delta and the log-sum-exp: left out, of another query, of other tensors, of another head.
    {kScores, "ds[group][j][i] - delta[i % 2]", "ds[group][j][i]"},
    {kScores, "- delta[i % 2]", "- delta[0]"},
    {kScores, "log_sum = lse[i % 2]", "log_sum = lse[0]"},
    {kShort, "memory.out(buffer) + at + 16 * n", "memory.gradients(buffer) + at + 16 * n"},
    {kShort, "sum = quad_sum(sum);", ""},
    {kShort, "i64(place.batch) * call.heads + place.head", "i64(place.batch) * call.heads"},
    // Products of the wrong operands.
    {kShort, "(sums, gradients, memory.queries(buffer)", "(sums, weights, memory.queries(buffer)"},
    {kShort, "(sums, weights, memory.gradients(buffer)", "(sums, weights, memory.queries(buffer)"},
    {kShort, "memory.values(buffer) + own", "memory.keys(buffer) + own"},
    {kShort, "memory.scores(), memory.keys(buffer)", "memory.scores(), memory.queries(buffer)"},
    {kProducts, "[2 * step + i / 2][i % 2]", "[2 * step + i / 2][1 - i % 2]"},
    {kProducts, "from + columns_first<T::kScorePitch>", "from + rows_first<T::kScorePitch>"},
    // Steps, rows and groups left out.
    {kProducts, "step < ceil_div(kTiles, 2)", "step < kTiles / 2"},
    {kProducts, "row0 + 16 * group", "row0"},
    {kProducts, "own + 16 * group * T::kPitch", "own"},
    {kShort, "row0 < 16 * T::kQueryGroups", "row0 < 16 * T::kQueryGroups - 16"},
    {kShort, "rows - row0, lane", "rows - row0 - 1, lane"},
    {kShort, "tile < T::kQueryTiles", "tile < T::kQueryTiles - 1"},
};

// A bias that batch entries and heads share, and a mask.
constexpr char kShared[] =
    "bf16 b=90 h=2 nq=20 nk=36 d=16 layout=bnhd bias=fp32:2x1x20x36 mask=bool:90x1x20x36 causal "
    "dbias";
constexpr Blocks kBiased = {3, 1, 2};
constexpr Mistake kBiasMistakes[] = {
    {kScores, "key > query", "key >= query"},
    {kScores, "__fmaf_rn(score, scale, bias", "__fmaf_rn(score, 1.f, bias"},
    {kScores, "- log_sum) * kLog2E", "- log_sum)"},
    {kScores, "!mask.leaves(group, j, i) ||", ""},
    {kScores, "of_batch * view.batch", "0"},
    {kScores, "if (now == entry) return;", "if (entry >= 0) return;"},
    {kShort, "work.batch * view.batch", "0"},
    {kShort, "query * view.row + key * view.key :", "key * view.row + query * view.key :"},
    {kShort, "entry * p.dbias_batches", "entry"},
    {kShort, "? i - entry * p.call.heads", "? 0"},
    // Sums: only the last head's, a part left out, rounded to 16 bits first, of the wrong entry.
    {kScores, "[i] += ds[group]", "[i] = ds[group]"},
    {kScores, "+= ds[group][j][i]",
     "+= __uint_as_float(__float_as_uint(ds[group][j][i]) & 0xffff0000u)"},
    {kDbias, "(p.parts, [&]", "(p.parts - 1, [&]"},
    {kShort, "i64(work.entry) * queries", "i64(0) * queries"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr MissingWait kUnordered[] = {
    {"RowsNotWaitedFor", {kShort, "copy_wait<0>();", ""}, "a race"},
    {"RowsOfOtherThreadsNotWaitedFor",
     {kShort, "__syncthreads();  // the head's rows", "// the head's rows"},
     "a race"},
    {"NumbersNotWaitedFor",
     {kShort, "__syncthreads();  // the numbers", "// the numbers"},
     "a race"},
    {"ScoresNotWaitedFor", {kShort, "__syncthreads();  // all of dS", "// all of dS"}, "a race"},
    {"ValuesStillReadWhenStaged",
     {kShort, "__syncwarp();  // what was there", "// what was there"},
     "a race"},
    {"StagedNotWaitedFor", {kShort, "__syncwarp();\n    store_rows", "store_rows"}, "a race"},
};
constexpr MissingWait kUnorderedSingle[] = {
    {"RowsStillRead",
     {kShort, "__syncthreads();  // all has been read", "// all has been read"},
     "a race"},
};

class AttentionBackwardShortGpuTest : public JudgedKernelsTest {};

class AttentionBackwardShortCasesGpuTest : public AttentionBackwardShortGpuTest,
                                           public testing::WithParamInterface<ShortCase> {};

TEST_P(AttentionBackwardShortCasesGpuTest, HeadsMatchTheReference) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(*problem, GetParam().blocks);
  EXPECT_EQ(problem->op().space(*problem, device_).explain(config).value_or(""), "");
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionBackwardShortCasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

struct Mistaken {
  const char* name;
  const char* problem;
  Blocks blocks;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

class AttentionBackwardShortMistakesGpuTest : public AttentionBackwardShortGpuTest,
                                              public testing::WithParamInterface<Mistaken> {};

TEST_P(AttentionBackwardShortMistakesGpuTest, EachIsSeen) {
  // A problem whose dbias is summed up.
  const ProblemPtr problem = parse_problem(on_device(text_of(GetParam().problem), "90", "7200"));
  const Config config = config_of(*problem, GetParam().blocks);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionBackwardShortMistakesGpuTest,
                         testing::Values(Mistaken{"Plain", kPlain, kTwoGroups, kPlainMistakes},
                                         Mistaken{"Bias", kShared, kBiased, kBiasMistakes}),
                         [](const auto& test) { return std::string(test.param.name); });

// Several heads for each CTA, several groups of keys for each warp.
class AttentionBackwardShortUnorderedGpuTest : public AttentionBackwardShortGpuTest,
                                               public testing::WithParamInterface<MissingWait> {
 protected:
  void expect_race(const Blocks& blocks) const {
    const ProblemPtr problem =
        parse_problem(text_of("bf16 b=160 h=1 n=33 d=16 layout=bnhd bias=bf16:33x33 dbias"));
    expect_fault(problem, config_of(*problem, blocks), GetParam().mistake, GetParam().fault);
  }
};
class AttentionBackwardShortSingleGpuTest : public AttentionBackwardShortUnorderedGpuTest {};

TEST_P(AttentionBackwardShortUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  expect_race({2, 2, 2});
}
TEST_P(AttentionBackwardShortSingleGpuTest, IsARaceOnTheEmulatedDevice) { expect_race({2, 1, 2}); }

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardShortUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardShortSingleGpuTest,
                         testing::ValuesIn(kUnorderedSingle),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::attention_backward_short_gpu_test
