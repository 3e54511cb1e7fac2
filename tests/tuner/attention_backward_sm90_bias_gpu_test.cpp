// tests/tuner/attention_backward_sm90_bias_gpu_test.cpp -- Gradients of attention of the family
// sm90_bias against the fp64 judge: biases of every type and broadcast, kept and step by step,
// tiles of dbias; equal bits; mistakes that the judge must see; and each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <string>

#include "generator/attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_backward_sm90_bias_gpu_test {
namespace {

struct Blocks {
  std::int64_t groups, key_step, query_step, stages, row_slots, keeps_bias;
  std::int64_t dbias_groups = 0, dbias_tiles = 0, dbias_step = 0;
};

Config config_of(const Blocks& b) {
  return {{"kFamily", 2},
          {"kGroups", b.groups},
          {"kKeyStep", b.key_step},
          {"kQueryStep", b.query_step},
          {"kStages", b.stages},
          {"kRowSlots", b.row_slots},
          {"kKeepsBias", b.keeps_bias},
          {"kDbiasGroups", b.dbias_groups},
          {"kDbiasTiles", b.dbias_tiles},
          {"kDbiasStep", b.dbias_step}};
}

struct BiasCase {
  const char* name;
  const char* problem;  // what follows the operator's name
  Blocks blocks;
};

void PrintTo(const BiasCase& each, std::ostream* out) { *out << each.problem; }

std::string text_of(const char* problem) { return std::string("attention_backward ") + problem; }

// Biases that all share, that windows share, of one head, of one row, of a row per head, of none;
// rows that begin anywhere, far from each other and in any order; tails of rows, steps and tiles.
const BiasCase kCases[] = {
    {"SharedByAll",
     "bf16 b=5 h=2 n=49 d=32 bias=bf16:1x2x49x49 dbias",
     {1, 32, 32, 2, 2, 0, 1, 1, 32}},
    {"SharedByAllKept",
     "bf16 b=5 h=2 n=130 d=64 layout=packed bias=bf16:1x2x130x130 dbias",
     {2, 80, 80, 3, 1, 1, 2, 2, 64}},
    {"SharedByWindows",
     "fp16 b=6 h=2 nq=70 nk=83 d=24 bias=fp16:3x2x70x83 dbias=fp32",
     {1, 32, 48, 2, 2, 0, 1, 1, 32}},
    {"OfOneHead",
     "bf16 b=3 h=3 nq=83 nk=70 d=16 bias=fp32:1x1x83x70 dbias=bf16",
     {1, 48, 32, 3, 1, 1, 2, 1, 48}},
    {"OfOneHeadOfWindows",
     "bf16 b=4 h=2 n=66 d=40 bias=bf16:2x1x66x66 dbias=fp16",
     {2, 48, 48, 2, 2, 1, 1, 1, 32}},
    {"OfEachScore",
     "bf16 b=2 h=2 n=35 d=16 bias=bf16:2x2x35x35 dbias",
     {1, 32, 32, 2, 1, 0, 1, 1, 32}},
    {"WithoutAGradient", "bf16 b=2 h=2 nq=19 nk=36 d=48 bias=bf16:1x2x1x36", {2, 32, 32, 2, 2, 0}},
    {"OfAQuery", "fp16 b=2 h=2 nq=70 nk=20 d=16 bias=fp16:1x2x70x1", {1, 32, 48, 2, 1, 1}},
    {"Strided",
     "bf16 b=2 h=2 n=67 d=64 do=bhnd dq=bhnd dk=bhnd dv=bhnd bias=bf16:1x2x67x67@0,1,134,2 dbias",
     {2, 48, 48, 2, 2, 1, 2, 1, 64}},
    {"ThreeWarpgroups",
     "bf16 b=3 h=1 nq=130 nk=197 d=16 bias=bf16:1x1x130x197 dbias",
     {3, 48, 48, 2, 1, 1, 3, 3, 32}},
    {"OneToken", "bf16 b=2 h=2 n=1 d=16 bias=bf16:1x2x1x1 dbias", {1, 32, 32, 2, 2, 0, 1, 1, 32}},
    {"OneKey",
     "bf16 b=2 h=2 nq=66 nk=1 d=16 bias=fp32:1x2x66x1 dbias",
     {2, 32, 48, 2, 1, 1, 1, 1, 32}},
    // Loops without a tail, whose operands ptxas once lost.
    {"WholeSteps",
     "bf16 b=3 h=2 n=128 d=64 bias=bf16:1x2x128x128 dbias",
     {2, 64, 64, 2, 2, 0, 2, 1, 32}},
    {"HeadsOf80",
     "fp16 b=2 h=2 n=81 d=80 bias=fp16:1x2x81x81 dbias",
     {2, 48, 48, 2, 2, 0, 2, 1, 48}},
    {"HeadsOf128",
     "bf16 b=2 h=1 n=73 d=128 bias=bf16:1x1x73x73 dbias",
     {2, 48, 48, 2, 1, 0, 2, 2, 32}},
};

constexpr char kArrange[] = "attention_backward/arrange_bias_sm90.cuh";
constexpr char kBits[] = "attention_backward/bias_bits.cuh";
constexpr char kItems[] = "attention_backward/bias_items_sm90.cuh";
constexpr char kFragments[] = "attention_backward/bias_fragments_sm90.cuh";
constexpr char kDq[] = "attention_backward/dq_bias_sm90.cuh";
constexpr char kDkv[] = "attention_backward/dkv_bias_sm90.cuh";
constexpr char kDbias[] = "attention_backward/dbias_sm90.cuh";
constexpr char kStore[] = "attention_backward/store_sm90.cuh";

// Windows and heads with biases of their own, several blocks, steps and tiles, tails of all.
constexpr char kWindows[] = "bf16 b=6 h=2 nq=70 nk=83 d=24 bias=bf16:3x2x70x83 dbias";
constexpr Blocks kSmall = {1, 32, 32, 2, 1, 0, 1, 1, 32};
constexpr Mistake kWindowsMistakes[] = {
    // The bias in its order: rows, columns, ends, batches and heads of another one.
    {kArrange, "lane % 4 * 2;", "lane % 4;"},
    {kArrange, "i / 2 % 2 * 8, column", "i / 4 % 2 * 8, column"},
    {kArrange, "kOfKeys ? column : row", "row"},
    {kArrange, "query < kB.queries && key < kB.keys;", "query < kB.queries && key <= kB.keys;"},
    {kArrange, ": Value::kMinusInfinity", ": typename Value::Bits(0)"},
    {kArrange, "batch * call.bias_view.batch +", "0 * call.bias_view.batch +"},
    {kArrange, "head * call.bias_view.head;", "batch * call.bias_view.head;"},
    {kBits, "values[2 * i] | u32(values[2 * i + 1]) << 16",
     "values[2 * i + 1] | u32(values[2 * i]) << 16"},
    // Scores counted by their bias.
    {kItems, "first_batch + later * p.dbias_batches", "first_batch + later"},
    {kFragments, "values[2 * i] = E::low(words[i]);", "values[2 * i] = E::high(words[i]);"},
    {kFragments, "(__fmaf_rn(score, scale, bias) - lse) * kLog2E",
     "__fmaf_rn(score, scale, bias) - lse"},
    {kFragments, "__fmaf_rn(score, scale, bias)", "(score + bias) * scale"},
    {kFragments, "i64(entry) * T::kRowFragments + block", "block"},
    {kFragments, "block * T::kGroups + group", "group"},
    // dq and dkv.
    {kDq, "? -log_sums[half] : log_sums[half]", "? log_sums[half] : log_sums[half]"},
    {kDq, "load_fragment(out, rows + 2 * T", "load_fragment(out, rows + 1 * T"},
    {kDq, "numbers.values[j], this->lse[j / 2 % 2]", "numbers.values[j], this->lse[0]"},
    {kDq, "const int first = step * T::kBiasFragments;", "const int first = 0;"},
    {kStore, "rows.sums, p.call.scale", "rows.sums, 1.f"},
    {kDkv, "first = step * T::kBiasFragments;", "first = 0;"},
    {kDkv, "dp[pair] - low", "dp[pair]"},
    {kStore, "rows.dk, p.call.scale", "rows.dk, 1.f"},
    {kDkv, "bias + i * T::kFragmentBytes", "bias"},
    // dbias: sums, places, what units have.
    {kDbias, "products.dp[i + j] - delta[half]", "products.dp[i + j]"},
    {kDbias, "unit <= last", "unit < last"},
    {kDbias, "(entry + 1) * sharing * params.units - 1", "entry * sharing * params.units"},
    {kDbias, "kFirst / 16 * T::kFragmentBytes", "0"},
    {kDbias, "from + 64 + 8 * half", "from + 64"},
    {kDbias, "of_sixteen / 2 * 4 + of_sixteen % 2", "of_sixteen"},
    {kDbias, "key0 + threadIdx.x % 4 * 2;", "key0 + threadIdx.x % 2 * 2;"},
};

// A bias that stays, fp32, of one head; two warpgroups, two tiles of keys.
constexpr char kOneHead[] = "fp16 b=3 h=2 nq=70 nk=140 d=16 bias=fp32:3x1x70x140 dbias=fp16";
constexpr Blocks kKept = {2, 48, 48, 2, 2, 1, 2, 2, 48};
constexpr Mistake kOneHeadMistakes[] = {
    {kBits, "to + 128 * 16", "to + 128 * 8"},
    {kItems, "rest - later * p.sharing_heads", "0"},
    {kFragments, "at + i * 16 * kGroupThreads", "at + i * 16"},
    {kFragments, "tiles.full(), entry, first, count", "tiles.full(), 0, first, count"},
    {kDq, "tiles.group(T::kKeepsBias ? 0 : slot, group)",
     "tiles.group(T::kKeepsBias ? 0 : slot, 0)"},
    {kDkv, "tiles.group(T::kKeepsBias ? 0 : slot, group)",
     "tiles.group(T::kKeepsBias ? 0 : slot, 0)"},
    {kItems, "first_batch = of_entry / u32(p.dbias_heads)", "first_batch = of_entry % u32(2)"},
    {kDq, "(T::kKeepsBias ? number * (T::kStep / 16)", "(T::kKeepsBias ? 0 * (T::kStep / 16)"},
    {kDkv, "(T::kKeepsBias ? number * (T::kStep / 16)", "(T::kKeepsBias ? 0 * (T::kStep / 16)"},
    {kDbias, "column = tile.key0 / 16;", "column = 0;"},
    {kDbias, "% u32(T::kKeyTiles)) * T::kTileKeys", "% u32(T::kKeyTiles)) * 16"},
    {kDbias, "rows + group) * T::kFragmentPitch", "rows) * T::kFragmentPitch"},
    {kDbias, "first = group * kGroupRows * T::kSwizzle;", "first = 0;"},
};

// Units that have several scores, and two biases; on a device of few SMs.
constexpr char kSeveral[] = "bf16 b=12 h=2 nq=70 nk=83 d=24 bias=bf16:3x2x70x83 dbias";
constexpr Mistake kSeveralMistakes[] = {
    {kDq, "load_lse<T>(log_sums, p, index + 1, row)", "load_lse<T>(log_sums, p, index, row)"},
    {kDbias, "i64(unit + entry) * T", "i64(unit) * T"},
    {kDbias, "    rows.clear();\n", "    if (index == tile.scores.first) rows.clear();\n"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr MissingWait kUnordered[] = {
    {"BiasOfAStepNotWaitedFor",
     {kDq, "mbarrier_wait(this->shared.full(slot), this->at.phase);", ""},
     "a race"},
    {"BiasOfAStepStillRead",
     {kDq, "wait_for_loaded(shared.empty(at.index), at.phase);", ""},
     "a race"},
    {"QueriesNotWaitedFor",
     {kDq, "mbarrier_wait(tiles.rows_full(rows_at.index), rows_at.phase);", ""},
     "a race|never ends"},
    {"QueriesStillRead",
     {kDq, "wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);", ""},
     "a race|without fence"},
    {"ScoresNotWaitedFor", {kDq, "wgmma_wait<1>();", ""}, "a race|erred by|gave NaN"},
    {"StepsNotWaitedFor",
     {kDkv, "mbarrier_wait(this->shared.full(slot), this->at.phase);", ""},
     "a race"},
    {"StepsStillRead",
     {kDkv, "wait_for_loaded(shared.empty(at.index), at.phase);", ""},
     "a race|without fence"},
    {"RowsNotWaitedFor",
     {kDkv, "mbarrier_wait(tiles.rows_full(rows_at.index), rows_at.phase);", ""},
     "a race|never ends"},
    {"RowsStillRead",
     {kDkv, "wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);", ""},
     "a race|without fence"},
    {"ScoresOfKeysNotWaitedFor",
     {kDkv, "wgmma_wait<1>();  // the scores are there", "// the scores are there"},
     "a race|erred by|gave NaN"},
    {"GradientsOfKeysNotWaitedFor",
     {kDkv, "wgmma_wait<1>();  // the gradients", "// the gradients"},
     "erred by|gave NaN"},
    {"TileNotWaitedFor",
     {kDbias, "mbarrier_wait(shared.full(at.index), at.phase);", ""},
     "a race|never ends"},
    {"TileStillRead",
     {kDbias, "wait_for_loaded(shared.empty(at.index), at.phase);", ""},
     "a race|without fence"},
    {"BiasOfATileNotWaitedFor",
     {kDbias, "mbarrier_wait(shared.bias_full(), bias_phase);", ""},
     "a race|never ends"},
    {"BiasOfATileStillRead",
     {kDbias, "wait_for_loaded(shared.bias_empty(), phase);", ""},
     "a race|without fence|never ends"},
    {"ProductsNotWaitedFor",
     {kDbias, "wgmma_wait<1>();  // those of the first", "// those of the first"},
     "a race|erred by|gave NaN"},
    {"LastProductsNotWaitedFor", {kDbias, "wgmma_wait<0>();", ""}, "a race|erred by|gave NaN"},
};

constexpr MissingWait kUnorderedKept[] = {
    {"SecondRowsInThePlaceOfTheFirst",
     {kFragments, "slot > 0 ? T::kSecondRowsOffset : 0", "0"},
     "a race"},
    {"SecondQueriesStillRead",
     {kDq, "wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);", ""},
     "a race|without fence"},
    {"SecondRowsStillRead",
     {kDkv, "wait_for_loaded(tiles.rows_empty(rows_at.index), rows_at.phase);", ""},
     "a race|without fence"},
    {"KeptBiasNotWaitedFor",
     {kFragments, "mbarrier_wait(tiles.full(), phase);", ""},
     "a race|never ends"},
    {"KeptBiasStillRead",
     {kFragments, "wait_for_loaded(tiles.empty(), phase);", ""},
     "a race|without fence|never ends"},
};

class AttentionBackwardSm90BiasGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90_bias is for compute capability 9.0";
  }
};

class AttentionBackwardSm90BiasCasesGpuTest : public AttentionBackwardSm90BiasGpuTest,
                                              public testing::WithParamInterface<BiasCase> {};

TEST_P(AttentionBackwardSm90BiasCasesGpuTest, BiasesMatchTheReference) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().blocks);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionBackwardSm90BiasCasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

struct Mistaken {
  const char* name;
  const char* problem;
  Blocks blocks;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

class AttentionBackwardSm90BiasMistakesGpuTest : public AttentionBackwardSm90BiasGpuTest,
                                                 public testing::WithParamInterface<Mistaken> {};

TEST_P(AttentionBackwardSm90BiasMistakesGpuTest, EachIsSeen) {
  if (GetParam().problem == kSeveral && device_.name != "emulated device") {
    GTEST_SKIP() << "a GPU has an SM for each of the scores";
  }
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  const Config config = config_of(GetParam().blocks);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionBackwardSm90BiasMistakesGpuTest,
                         testing::Values(Mistaken{"Windows", kWindows, kSmall, kWindowsMistakes},
                                         Mistaken{"Several", kSeveral, kSmall, kSeveralMistakes},
                                         Mistaken{"OneHead", kOneHead, kKept, kOneHeadMistakes}),
                         [](const auto& test) { return std::string(test.param.name); });

class AttentionBackwardSm90BiasUnorderedGpuTest : public AttentionBackwardSm90BiasGpuTest,
                                                  public testing::WithParamInterface<MissingWait> {
};

// Five scores for each unit of the emulated device's, with two biases, in one pass more steps than
// slots and in the other fewer, so that rows come while others are still read.
TEST_P(AttentionBackwardSm90BiasUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const std::string name = GetParam().name;
  const bool has_few_keys = name == "QueriesStillRead" || name == "StepsStillRead";
  const ProblemPtr problem = parse_problem(
      text_of(has_few_keys ? "bf16 b=40 h=1 nq=97 nk=20 d=16 bias=bf16:10x1x97x20 dbias"
                           : "bf16 b=40 h=1 nq=20 nk=97 d=16 bias=bf16:10x1x20x97 dbias"));
  expect_fault(problem, config_of({2, 32, 32, 2, 1, 0, 2, 1, 32}), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardSm90BiasUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

class AttentionBackwardSm90BiasKeptUnorderedGpuTest
    : public AttentionBackwardSm90BiasUnorderedGpuTest {};

TEST_P(AttentionBackwardSm90BiasKeptUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem =
      parse_problem(text_of("bf16 b=40 h=1 n=20 d=16 bias=bf16:20x1x20x20 dbias"));
  expect_fault(problem, config_of({2, 32, 32, 2, 2, 1, 2, 1, 32}), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardSm90BiasKeptUnorderedGpuTest,
                         testing::ValuesIn(kUnorderedKept),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::attention_backward_sm90_bias_gpu_test
