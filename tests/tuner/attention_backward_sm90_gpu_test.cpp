// tests/tuner/attention_backward_sm90_gpu_test.cpp -- Gradients of attention of the family sm90
// against the fp64 judge: rows and steps of every width, tails, causal masks, shared keys; mistakes
// that the judge must see; and each wait left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <string>

#include "generator/attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_backward_sm90_gpu_test {
namespace {

struct Blocks {
  std::int64_t groups, key_step, query_step, stages;
};

Config config_of(const Blocks& b) {
  return {{"kFamily", 1},
          {"kGroups", b.groups},
          {"kKeyStep", b.key_step},
          {"kQueryStep", b.query_step},
          {"kStages", b.stages}};
}

struct Sm90Case {
  const char* name;
  const char* problem;  // what follows the operator's name
  Blocks blocks;
};

void PrintTo(const Sm90Case& each, std::ostream* out) { *out << each.problem; }

std::string text_of(const char* problem) { return std::string("attention_backward ") + problem; }

// Tails of one row and of nearly a step, blocks that a warpgroup has no rows of, heads of every
// width of a swizzle, rows as operands in registers and in shared memory.
const Sm90Case kCases[] = {
    {"OneWarpgroup", "bf16 b=3 h=3 n=50 d=64", {1, 32, 32, 2}},
    {"OneWarpgroupWideSteps", "fp16 b=1 h=6 n=97 d=32", {1, 64, 48, 3}},
    {"TwoWarpgroups", "bf16 b=1 h=5 n=130 d=64 layout=packed", {2, 64, 64, 3}},
    {"TwoWarpgroupsWholeSteps", "bf16 b=1 h=2 n=128 d=64", {2, 128, 64, 2}},
    {"TwoWarpgroupsWideSteps", "fp16 b=1 h=2 nq=100 nk=129 d=64", {2, 96, 96, 2}},
    {"ThreeWarpgroups", "fp16 b=1 h=2 nq=130 nk=70 d=32", {3, 64, 48, 2}},
    {"OneToken", "bf16 b=2 h=2 n=1 d=16", {1, 32, 32, 2}},
    {"OneKey", "bf16 b=1 h=2 nq=33 nk=1 d=16", {1, 32, 32, 2}},
    {"OneQuery", "bf16 b=1 h=2 nq=1 nk=66 d=16", {2, 32, 32, 2}},
    {"HeadsOf8", "bf16 b=1 h=2 n=40 d=8", {1, 32, 32, 2}},
    {"HeadsOf24", "bf16 b=1 h=2 n=70 d=24 layout=bhnd", {1, 64, 48, 2}},
    {"HeadsOf40", "bf16 b=1 h=2 n=65 d=40", {2, 32, 64, 2}},
    {"HeadsOf48", "bf16 b=1 h=2 n=65 d=48", {3, 32, 32, 2}},
    {"HeadsOf72", "bf16 b=1 h=2 nq=90 nk=75 d=72", {2, 64, 48, 2}},
    {"HeadsOf80", "fp16 b=1 h=2 n=81 d=80", {2, 64, 64, 2}},
    {"HeadsOf96", "bf16 b=1 h=2 n=81 d=96", {2, 64, 48, 2}},
    {"HeadsOf128", "bf16 b=1 h=2 n=73 d=128", {2, 64, 48, 2}},
    {"SharedKeys", "bf16 b=2 h=6 hkv=2 nq=70 nk=90 d=64", {2, 64, 32, 3}},
    {"Causal", "bf16 b=1 h=3 n=130 d=64 causal", {2, 64, 48, 2}},
    {"CausalOneWarpgroup", "bf16 b=1 h=18 n=100 d=32 causal", {1, 32, 32, 2}},
    {"CausalFewerKeys", "bf16 b=1 h=2 nq=130 nk=70 d=64 causal", {2, 32, 64, 3}},
    {"CausalMoreKeys", "fp16 b=1 h=4 hkv=2 nq=40 nk=200 d=32 causal", {2, 64, 32, 2}},
    {"Strided", "bf16 b=2 h=2 n=67 d=64 do=bhnd dq=bhnd dk=bhnd dv=bhnd", {2, 64, 64, 2}},
};

constexpr char kDq[] = "attention_backward/dq_sm90.cuh";
constexpr char kDkv[] = "attention_backward/dkv_sm90.cuh";
constexpr char kItems[] = "attention_backward/items_sm90.cuh";
constexpr char kRows[] = "attention_backward/rows_sm90.cuh";
constexpr char kShared[] = "attention_backward/shared_sm90.cuh";
constexpr char kStore[] = "attention_backward/store_sm90.cuh";
constexpr char kProducts[] = "attention_backward/products_sm90.cuh";

// Blocks, whole steps and tails on both sides, of which products take eight and sixteen columns.
constexpr char kPlain[] = "bf16 b=2 h=2 nq=70 nk=83 d=24";
constexpr Blocks kSmall = {1, 32, 32, 2};
constexpr Mistake kPlainMistakes[] = {
    // Scales, logarithms of two, rows without an end.
    {kStore, "rows.sums, p.call.scale", "rows.sums, 1.f"},
    {kStore, "rows.dk, p.call.scale", "rows.dk, 1.f"},
    {kStore, "rows.dv, 1.f", "rows.dv, p.call.scale"},
    {kDq, "value * kLog2E", "value"},
    {kDq, "? -value : value", "? value : value"},
    {kDq, "if (!seen) s[i] = 0.f;", ""},
    // delta: left out, a part of it, of other tensors, of another row.
    {kDq, "kept.gradient(dp[i], delta, i)", "dp[i]"},
    {kRows, "kept.gradient(dp[pair], low, pair)", "dp[pair]"},
    {kDq, "delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 2);", ""},
    {kDq, "load_fragment(out, this->shared.rows(2)", "load_fragment(out, this->shared.rows(1)"},
    {kDq, "{maps.q, maps.dout, maps.out}", "{maps.q, maps.out, maps.dout}"},
    {kDq, "to[16 + 2 * half] = delta[half]", "to[16 + 2 * half] = delta[0]"},
    {kRows, "low = of_query(deltas, 2 * j)", "low = of_query(deltas, j)"},
    // Numbers of other heads, of other steps, in another order.
    {kDq, "p.call.lse + i64(item.head_index)", "p.call.lse + i64(item.head)"},
    {kDkv, "i64(item.batch * p.call.heads + head)", "i64(head)"},
    {kDkv, "u64(stats + 2 * row)", "u64(stats)"},
    {kDq, "of_sixteen / 2 * 4 + of_sixteen % 2", "of_sixteen"},
    // Products of the wrong operands.
    {kDkv, "(rows.dv, weights, rows.shared.second(slot))",
     "(rows.dv, weights, rows.shared.first(slot))"},
    {kDkv, "(rows.dk, rows.ds, rows", "(rows.dk, weights, rows"},
    {kProducts, "2 * step + lane / 16", "2 * step"},
    {kProducts, "descriptor_at(across, step * 16 * T::kSwizzle)", "across"},
    // Steps left out, rows that are not there.
    {kDq, "if constexpr (T::kTail > 0)", "if constexpr (false)"},
    {kDkv, "if constexpr (T::kTail > 0)", "if constexpr (false)"},
    {kStore, "row < min(rows, 16)", "row < min(rows, 15)"},
};

// Causal, with query heads that share keys.
constexpr char kCausal[] = "fp16 b=1 h=4 hkv=2 nq=100 nk=70 d=16 causal";
constexpr Mistake kCausalMistakes[] = {
    {kDq, "key0 + key <= row()", "key0 + key < row()"},
    {kDq, "+ T::kStep > rows.row0", "+ T::kStep > rows.row0 + 32"},
    {kDkv, "8 <= query;", "8 < query;"},
    {kDkv, "< rows.row0 + kGroupRows - 1", "< rows.row0"},
    {kItems, "min(row0 / T::kStep, T::kSteps)", "min(row0 / T::kStep + 1, T::kSteps)"},
    {kItems, "kOfKeys ? order : T::kBlocks - 1 - order", "order / 2"},
    {kDkv, "item.head * p.call.heads_per_kv + i", "item.head * p.call.heads_per_kv"},
    {kDq, "u32(item.head) / u32(p.call.heads_per_kv)", "u32(item.head) % u32(2)"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr MissingWait kUnordered[] = {
    {"QueriesNotWaitedFor",
     {kDq, "mbarrier_wait(shared.rows_full(), rows_phase);", ""},
     "a race|never ends"},
    {"KeysNotWaitedFor",
     {kDq, "mbarrier_wait(rows.shared.full(slot), rows.at.phase);", ""},
     "a race"},
    {"QueriesStillRead",
     {kDq, "wait_for_loaded(shared.rows_empty(), rows_phase);", ""},
     "a race|without fence"},
    {"KeysStillRead", {kDq, "mbarrier_wait(shared.empty(at.index), at.phase ^ 1);", ""}, "a race"},
    {"ScoresNotWaitedFor", {kDq, "wgmma_wait<1>();", ""}, "a race|erred by"},
    // At the end of the step, with the products that should have waited for them.
    {"GradientsOfWeightsWaitedForLate",
     {kDq, "  wgmma_wait<0>();\n#pragma unroll\n  for (int i = 0; i < kWidth",
      "  struct Late {\n    __device__ ~Late() { wgmma_wait<0>(); }\n  } late;\n"
      "#pragma unroll\n  for (int i = 0; i < kWidth"},
     "erred by"},
    // Read before the wait, which the emulated device must see before the sums are gone.
    {"DqNotWaitedFor",
     {kDq, "wgmma_wait<0>();\n#pragma unroll\n    for (int i = 0; i < T::kHeadDim",
      "float early[T::kHeadDim / 2];\n"
      "    for (int i = 0; i < T::kHeadDim / 2; ++i) early[i] = sums[i];\n"
      "    wgmma_wait<0>();\n"
      "    for (int i = 0; i < T::kHeadDim / 2; ++i) sums[i] = early[i];\n"
      "    for (int i = 0; i < T::kHeadDim"},
     "a race|erred by|gave NaN"},
    {"LoadedWithoutAFence", {kShared, "fence_proxy_async();", ""}, "without fence.proxy.async"},
    {"RowsNotWaitedFor",
     {kDkv, "mbarrier_wait(shared.rows_full(), rows_phase);", ""},
     "a race|never ends"},
    {"StepsNotWaitedFor",
     {kDkv, "mbarrier_wait(rows.shared.full(slot), rows.at.phase);", ""},
     "a race"},
    {"RowsStillRead",
     {kDkv, "wait_for_loaded(shared.rows_empty(), rows_phase);", ""},
     "a race|without fence"},
    {"StepsStillRead",
     {kDkv, "wait_for_loaded(shared.empty(at.index), at.phase);", ""},
     "a race|without fence"},
    {"ScoresOfKeysNotWaitedFor",
     {kDkv, "wgmma_wait<1>();  // the scores are there", "// the scores are there"},
     "a race|erred by|gave NaN"},
    {"GradientsOfKeysNotWaitedFor",
     {kDkv, "wgmma_wait<1>();  // the gradients", "// the gradients"},
     "erred by"},
    {"DkAndDvNotWaitedFor",
     {kDkv, "wgmma_wait<0>();\n#pragma unroll", "#pragma unroll"},
     "a race|erred by|gave NaN"},
    {"StagedStillRead",
     {kStore, "__syncwarp();  // what was staged", "// what was staged"},
     "a race"},
    {"StagedNotWaitedFor", {kStore, "__syncwarp();\n#pragma unroll", "#pragma unroll"}, "a race"},
};

class AttentionBackwardSm90GpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  }
};

class AttentionBackwardSm90CasesGpuTest : public AttentionBackwardSm90GpuTest,
                                          public testing::WithParamInterface<Sm90Case> {};

TEST_P(AttentionBackwardSm90CasesGpuTest, BlocksMatchTheReference) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().blocks);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionBackwardSm90CasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

struct Mistaken {
  const char* name;
  const char* problem;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

class AttentionBackwardSm90MistakesGpuTest : public AttentionBackwardSm90GpuTest,
                                             public testing::WithParamInterface<Mistaken> {};

TEST_P(AttentionBackwardSm90MistakesGpuTest, EachIsSeen) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  const Config config = config_of(kSmall);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionBackwardSm90MistakesGpuTest,
                         testing::Values(Mistaken{"Plain", kPlain, kPlainMistakes},
                                         Mistaken{"Causal", kCausal, kCausalMistakes}),
                         [](const auto& test) { return std::string(test.param.name); });

class AttentionBackwardSm90UnorderedGpuTest : public AttentionBackwardSm90GpuTest,
                                              public testing::WithParamInterface<MissingWait> {};

// Several blocks for each CTA, in one pass more steps than slots and in the other fewer, so that
// rows come while others are still read.
TEST_P(AttentionBackwardSm90UnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const std::string name = GetParam().name;
  const bool has_few_keys = name == "QueriesStillRead" || name == "StepsStillRead";
  const ProblemPtr problem = parse_problem(
      text_of(has_few_keys ? "bf16 b=9 h=2 nq=97 nk=20 d=16" : "bf16 b=9 h=2 nq=20 nk=97 d=16"));
  expect_fault(problem, config_of(kSmall), GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardSm90UnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::attention_backward_sm90_gpu_test
