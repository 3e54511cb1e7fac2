// tests/tuner/attention_backward_one_pass_gpu_test.cpp -- Gradients of attention of the family
// sm90_one_pass against the fp64 judge: blocks of keys, steps and tails of every width; mistakes
// that the judge must see; and each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "generator/attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_backward_one_pass_gpu_test {
namespace {

struct Blocks {
  std::int64_t query_step, stages, key_stages;
};

Config config_of(const Blocks& b) {
  return {{"kFamily", 4},
          {"kQueryStep", b.query_step},
          {"kStages", b.stages},
          {"kKeyStages", b.key_stages}};
}

struct OnePassCase {
  const char* name;
  const char* problem;  // what follows the operator's name
  Blocks blocks;
};

void PrintTo(const OnePassCase& each, std::ostream* out) { *out << each.problem; }

std::string text_of(const char* problem) { return std::string("attention_backward ") + problem; }

// One block of keys, several, a warpgroup without keys in the last one or in all; whole steps
// alone, tails of one query and of nearly a step; odd numbers of steps; heads of every swizzle,
// whole and not of dQ's blocks of 64 columns.
const OnePassCase kCases[] = {
    {"OneBlock", "bf16 b=2 h=3 nq=100 nk=128 d=64", {64, 2, 2}},
    {"OneBlockWholeSteps", "bf16 b=1 h=2 nq=128 nk=128 d=64", {64, 2, 2}},
    {"FewKeys", "bf16 b=1 h=5 nq=100 nk=50 d=64", {64, 2, 2}},
    {"OneKey", "bf16 b=1 h=2 nq=97 nk=1 d=64", {48, 2, 2}},
    {"TwoBlocks", "bf16 b=1 h=3 n=197 d=64 layout=packed", {64, 2, 2}},
    {"TwoBlocksOddSteps", "fp16 b=1 h=2 n=197 d=64", {80, 3, 2}},
    {"TwoBlocksWholeSteps", "bf16 b=1 h=2 n=160 d=64", {80, 2, 2}},
    {"ThreeBlocksOneKey", "bf16 b=1 h=2 nq=65 nk=257 d=64", {64, 2, 2}},
    {"ThreeBlocksHalf", "bf16 b=1 h=1 nq=100 nk=320 d=64", {64, 2, 2}},
    {"SeveralHeads", "bf16 b=5 h=2 nq=140 nk=130 d=32", {48, 3, 2}},
    {"SeveralHeadsOneKeyStage", "fp16 b=5 h=2 nq=100 nk=130 d=32", {48, 2, 1}},
    {"ThreeStages", "bf16 b=1 h=2 nq=129 nk=140 d=64", {64, 3, 2}},
    {"OneKeyStage", "bf16 b=1 h=2 nq=150 nk=270 d=72", {64, 2, 1}},
    {"HeadsOf32", "bf16 b=1 h=3 nq=150 nk=130 d=32", {80, 2, 2}},
    {"HeadsOf40", "bf16 b=1 h=2 nq=90 nk=70 d=40 layout=bhnd", {80, 2, 2}},
    {"HeadsOf48", "fp16 b=1 h=2 nq=90 nk=140 d=48", {80, 2, 2}},
    {"HeadsOf80", "bf16 b=1 h=2 n=257 d=80 layout=packed", {64, 2, 2}},
    {"HeadsOf96", "bf16 b=1 h=2 nq=81 nk=150 d=96", {48, 2, 1}},
    {"HeadsOf88", "fp16 b=1 h=1 nq=70 nk=150 d=88", {32, 2, 2}},
    {"Strided", "bf16 b=2 h=2 n=140 d=64 do=bhnd dq=bhnd dk=bhnd dv=bhnd", {64, 2, 2}},
};

constexpr char kKernel[] = "attention_backward/one_pass_sm90.cuh";
constexpr char kDeltas[] = "attention_backward/one_pass_deltas.cuh";
constexpr char kDq[] = "attention_backward/one_pass_dq.cuh";
constexpr char kShared[] = "attention_backward/one_pass_shared.cuh";
constexpr char kRows[] = "attention_backward/rows_sm90.cuh";

// Two blocks of keys, the last of few; a tail of steps, three of them; heads of a block and a part.
constexpr char kProblem[] = "bf16 b=2 h=2 nq=117 nk=150 d=72";
constexpr Blocks kSmall = {48, 2, 1};
constexpr Mistake kMistakes[] = {
    // Scales, logarithms of two, rows and keys without an end.
    {kDq, "shared.dq_staging(), p.call.scale);", "shared.dq_staging(), 1.f);"},
    {kKernel, "      p.call.scale);", "      1.f);"},
    {kKernel, "dv, 1.f", "dv, p.call.scale"},
    {kDeltas, "log_sum * kLog2E", "log_sum"},
    {kDeltas, "? -log_sum :", "? log_sum :"},
    {kDeltas, "is_mine && query < T::kQueries ? lse[query] : minus_infinity()",
     "lse[min(query, T::kQueries - 1)]"},
    {kKernel, "if (!seen[i / 2 % 2]) s[i] = 0.f;", ""},
    {kKernel, "row + 8 < T::kLastKeys", "row < T::kLastKeys"},
    // delta: left out, of other rows, of other tensors.
    {kRows, "kept.gradient(dp[pair], low, pair)", "dp[pair]"},
    {kRows, "(dp[pair + 1], high,", "(dp[pair + 1], low,"},
    {kDeltas, "const uint4 b = load_shared_16(out", "const uint4 b = load_shared_16(dout"},
    {kDeltas, "of_eight / 2 * 4 + query % 16 / 8 * 2 + of_eight % 2", "query % 16"},
    {kDeltas, "i64(head) * T::kQueries", "i64(head / 2) * T::kQueries"},
    {kDeltas, "lse[query] :", "lse[row] :"},
    {kDeltas, "row < T::kStep &&", "row < T::kStep - 16 &&"},
    // Products of the wrong operands.
    {kKernel, "(dv, weights, shared.dout(slot))", "(dv, weights, shared.queries(slot))"},
    {kKernel, "(dk, ds, shared", "(dk, weights, shared"},
    {kKernel, "k.load(shared.keys(keys.index), group() * kGroupRows)",
     "k.load(shared.keys(keys.index), 0)"},
    {kKernel, "group() * 8 + 2 * warp() + lane / 8 % 2",
     "group() * 8 + 2 * warp() + 1 - lane / 8 % 2"},
    {kKernel, "lane / 16 * 8 + lane % 8;", "8 - lane / 16 * 8 + lane % 8;"},
    {kDq, "16 * T::kSwizzle * step", "0"},
    // Sums that wait between blocks of keys: left out, of another step, of other columns.
    {kDq, "if (T::kBlocks > 1 && !is_first) read_sums<T::kStaysInL2>(sums, kept);", ""},
    {kDq, "query0 / T::kStep * T::kStepSums +", "0 * T::kStepSums +"},
    {kDq, "is_first = index == 0;", "is_first = index <= 1;"},
    {kDq, "sums[4 * i + 2] = __uint_as_float(four.z);", ""},
    // Another step in the place of the last, rows that are not there.
    {kKernel, "step<T::kTailWidth>(T::kWholeSteps * T::kStep)", "step<T::kTailWidth>(0)"},
    {kDq, "step<T::kTailWidth>(T::kWholeSteps * T::kStep,", "step<T::kTailWidth>(0,"},
    {kDq, "min(rows, kWidth) - row", "min(rows - 1, kWidth) - row"},
    {kDq, "to + row * stride, stride", "to, stride"},
};

// Of dQ transposed.
constexpr char kNarrowProblem[] = "bf16 b=2 h=2 nq=117 nk=150 d=64";
constexpr Blocks kNarrow = {48, 2, 2};
constexpr Mistake kNarrowMistakes[] = {
    {kDq, "shared.dq_staging(), p.call.scale);", "shared.dq_staging(), 1.f);"},
    {kDq, "step * 16 * T::kSwizzle", "0"},
    {kDq, "if (T::kBlocks > 1 && !is_first) read_sums<T::kStaysInL2>(sums, kept);", ""},
    {kDq, "query0 / T::kStep * T::kStepSums +", "0 * T::kStepSums +"},
    {kDq, "query0 + row < rows &&", "query0 + row + 1 < rows &&"},
    {kDq, "u16* const at = to + (query0 + row) * stride", "u16* const at = to + row * stride"},
    {kDq, "lane / 16 * 8 + lane % 8, lane / 8 % 2", "lane / 8 % 2 * 8 + lane % 8, lane / 16"},
};

// Each wait that orders accesses to shared memory, left out.
constexpr MissingWait kUnordered[] = {
    {"KeysNotWaitedFor",
     {kKernel, "mbarrier_wait(shared.keys_full(keys.index), keys.phase);", ""},
     "a race|never ends"},
    {"KeysStillReadForDq",
     {kShared, "mbarrier_init(keys_empty(slot), kWarps + kDqWarps);",
      "mbarrier_init(keys_empty(slot), kWarps);"},
     "a race|never ends"},
    {"KeysStillRead",
     {kKernel, "mbarrier_wait(shared.keys_empty(keys.index), keys.phase ^ 1);", ""},
     "a race"},
    {"StepsNotWaitedFor",
     {kKernel, "mbarrier_wait(shared.full(slot), at.phase);\n    multiply", "multiply"},
     "a race"},
    {"StepsStillRead",
     {kKernel, "wait_for_loaded(shared.empty(at.index), at.phase);", ""},
     "a race|without fence"},
    {"LoadedWithoutAFence",
     {"attention_backward/shared_sm90.cuh", "fence_proxy_async();", ""},
     "without fence.proxy.async"},
    {"RowsOfDeltasNotWaitedFor",
     {kDeltas, "mbarrier_wait(shared.full(at.index), at.phase);", ""},
     "a race|never ends"},
    {"DeltasNotWaitedFor",
     {kKernel, "mbarrier_wait(shared.weighed(slot), at.phase);", ""},
     "a race"},
    {"ScoresNotWaitedFor",
     {kKernel, "wgmma_wait<1>();  // the scores are there", "// the scores are there"},
     "a race|erred by|gave NaN"},
    {"GradientsOfWeightsNotWaitedFor",
     {kKernel, "wgmma_wait<1>();  // the gradients of", "// the gradients of"},
     "erred by"},
    {"HandedOverEarly",
     {kKernel,
      "mbarrier_wait(shared.gradients_empty(exchange.index), exchange.phase ^ 1);\n    "
      "hand_over<kWidth>(shared.gradients(exchange.index));\n",
      "hand_over<kWidth>(shared.gradients(exchange.index));\n"},
     "a race"},
    {"HandedOverWithoutAFence",
     {kKernel, "fence_proxy_async();\n    release_tile<1>(shared.gradients_full(handed))",
      "release_tile<1>(shared.gradients_full(handed))"},
     "without fence.proxy.async"},
    {"GradientsNotWaitedFor",
     {kDq, "mbarrier_wait(shared.gradients_full(exchange.index), exchange.phase);",
      "(void)shared;"},
     "a race"},
    // Read before the wait, which the emulated device must see before the sums are gone.
    {"DqNotWaitedFor",
     {kDq, "wgmma_wait<0>();\n",
      "float early[Gradients::kSums];\n"
      "    for (int i = 0; i < Gradients::kSums; ++i) early[i] = sums[i];\n"
      "    wgmma_wait<0>();\n"
      "    for (int i = 0; i < Gradients::kSums; ++i) sums[i] = early[i];\n"},
     "a race|erred by|gave NaN"},
    {"StagedStillRead", {kDq, "__syncwarp();  // what was staged", "// what was staged"}, "a race"},
    {"StagedNotWaitedFor", {kDq, "__syncwarp();\n#pragma unroll", "#pragma unroll"}, "a race"},
    {"ReleasedBeforeRead",
     {kDeltas, "      if (is_mine) write_stats",
      "      release_tile<1>(shared.empty(at.index));\n      if (is_mine) write_stats"},
     "a race|never ends"},
    {"FewerWarpsWaitedFor",
     {kShared, "mbarrier_init(empty(slot), kWarps + kDeltaWarps);",
      "mbarrier_init(empty(slot), kWarps);"},
     "a race|never ends"},
};

class AttentionBackwardOnePassGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  }
};

class AttentionBackwardOnePassCasesGpuTest : public AttentionBackwardOnePassGpuTest,
                                             public testing::WithParamInterface<OnePassCase> {};

TEST_P(AttentionBackwardOnePassCasesGpuTest, BlocksMatchTheReference) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().blocks);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionBackwardOnePassCasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(AttentionBackwardOnePassGpuTest, EachMistakeIsSeen) {
  const ProblemPtr problem = parse_problem(text_of(kProblem));
  const Config config = config_of(kSmall);
  expect_seen(problem, config, kMistakes);
}

TEST_F(AttentionBackwardOnePassGpuTest, EachMistakeOfTransposedRowsIsSeen) {
  const ProblemPtr problem = parse_problem(text_of(kNarrowProblem));
  expect_seen(problem, config_of(kNarrow), kNarrowMistakes);
}

class AttentionBackwardOnePassUnorderedGpuTest : public AttentionBackwardOnePassGpuTest,
                                                 public testing::WithParamInterface<MissingWait> {};

// More heads than the emulated device has CTAs for, more steps than slots, and both warpgroups have
// keys in each block. With two blocks of keys
// in shared memory the ring of steps alone keeps a third one back.
TEST_P(AttentionBackwardOnePassUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem(text_of("bf16 b=5 h=2 nq=140 nk=200 d=32"));
  const bool has_one_block = std::string(GetParam().name) == "KeysStillRead";
  expect_fault(problem, config_of({48, 3, has_one_block ? 1 : 2}), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardOnePassUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::attention_backward_one_pass_gpu_test
