// tests/tuner/attention_backward_gpu_test.cpp -- Gradients of attention against the fp64 judge:
// configs of every kind on problems of every form, equal bits in two runs, and mistakes that the
// judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generator/attention_backward/kernel_spec.h"
#include "generator/attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_backward_gpu_test {
namespace {

// Every word, tails of rows and keys, head sizes of whole and half steps, strides of every width,
// biases of every type that are shared by all, by windows, by heads, by none.
constexpr const char* kProblems[] = {
    "attention_backward bf16 b=2 h=2 n=50 d=64",
    "attention_backward fp16 b=1 h=2 nq=33 nk=70 d=32 layout=bhnd do=bhnd",
    "attention_backward bf16 b=1 h=4 hkv=2 nq=40 nk=77 d=24 causal align=8",
    "attention_backward fp16 b=1 h=2 nq=77 nk=40 d=40 causal dq=bhnd dk=bhnd",
    "attention_backward bf16 b=1 h=1 n=17 d=8 layout=bnhd align=2",
    "attention_backward bf16 b=1 h=1 n=35 d=128 layout=bnhd dv=@4480,128,128",
    "attention_backward bf16 b=4 h=2 n=49 d=32 bias=bf16:1x2x49x49 dbias",
    "attention_backward bf16 b=4 h=3 n=33 d=16 bias=fp32:2x1x33x33 mask=bool:2x1x33x33 dbias",
    "attention_backward fp16 b=2 h=2 nq=20 nk=52 d=72 bias=fp16:2x2x20x52 dbias=fp32",
    "attention_backward bf16 b=2 h=4 hkv=1 nq=19 nk=36 d=48 bias=bf16:1x4x1x36 mask=bool:2x1x1x36",
    "attention_backward bf16 b=2 h=2 n=24 d=80 causal bias=fp32:1x1x24x24 dbias=bf16",
};
constexpr std::size_t kConfigsEach = 1;

constexpr char kDq[] = "attention_backward/dq_sm80.cuh";
constexpr char kDkv[] = "attention_backward/dkv_sm80.cuh";
constexpr char kDbias[] = "attention_backward/dbias.cuh";
constexpr char kScores[] = "attention_backward/score_gradients.cuh";
constexpr char kProducts[] = "attention_backward/products_sm80.cuh";

// Rows and keys past the end, several steps of both, few heads: no bias.
constexpr char kPlain[] = "attention_backward bf16 b=1 h=2 nq=37 nk=75 d=16 layout=bnhd";
constexpr Mistake kPlainMistakes[] = {
    // Scales: missing on dQ, on dK, twice on dV.
    {kDq, "work.sums, call.scale", "work.sums, 1.f"},
    {kDkv, "work.dk, call.scale", "work.dk, 1.f"},
    {kDkv, "work.dv, 1.f", "work.dv, call.scale"},
    // Weights: ln for log2, a row without keys, keys and rows past the end.
    {kScores, "1.f : kLog2E", "1.f : 1.f"},
    {kScores, "const float scale_log2 = scale * kLog2E", "const float scale_log2 = scale"},
    {kScores, "log_sum == minus_infinity() || !is_there", "!is_there"},
    {kScores, "key0 + kWidth > p.keys ||", "false ||"},
    // delta: left out, of the wrong row, of dO alone, not handed on, of the wrong head.
    {kScores, "ds[0][j][i] - rows.delta[i / 2]", "ds[0][j][i]"},
    {kScores, "rows.delta[i / 2]", "rows.delta[0]"},
    {kDq, "(delta, dout_rows, out_rows", "(delta, dout_rows, dout_rows"},
    {kDq, "p.delta[first + row] = delta[half]", "p.delta[first + row] = 0.f"},
    {kDq, "call.heads + head.head) * call.queries", "call.heads) * call.queries"},
    // dS and P: the one for the other, transposed wrongly, products of the wrong tensor.
    {kDq, "pack_rows<T, T::kChunk>(a, ds", "pack_rows<T, T::kChunk>(a, s"},
    {kDkv, "pack_keys<T, T::kWarpKeys>(a, ds", "pack_keys<T, T::kWarpKeys>(a, s"},
    {kProducts, "transposed(Element<T::kElement>::pack(two[0], two[1]))",
     "Element<T::kElement>::pack(two[0], two[1])"},
    {kProducts, "2 * pair + i % 2][i / 2 * 2]", "2 * pair + i / 2][i % 2 * 2]"},
    {kDkv, "(dv[group], a, gradient_rows", "(dv[group], a, query_rows"},
    {kDkv, "(dk[group], a, query_rows", "(dk[group], a, gradient_rows"},
    // Steps: the last one, and the last rows of one, left out.
    {kDq, "steps = ceil_div(seen, T::kStepKeys)", "steps = max(seen / T::kStepKeys, 1)"},
    {kDkv, "ceil_div(call.queries, T::kStepRows)", "max(call.queries / T::kStepRows, 1)"},
    {kDkv, "r < T::kStepRows; r += 16", "r < T::kStepRows - 16; r += 16"},
};

// Causal, with query heads that share keys.
constexpr char kCausal[] = "attention_backward fp16 b=1 h=4 hkv=2 nq=70 nk=50 d=24 causal";
constexpr Mistake kCausalMistakes[] = {
    {"attention/scores.cuh", "key0 + key <= row", "key0 + key < row"},
    {kScores, "key0 + kWidth > row0 + 1", "key0 + kWidth > row0 + 16"},
    {kDkv, "T::kCausal ? cta_key / T::kStepRows", "T::kCausal ? cta_key / T::kStepRows + 1"},
    {kDq, "min(call.keys, cta_row + T::kBlock)", "min(call.keys, cta_row)"},
    {kDq, "min(call.keys, row0 + 16)", "min(call.keys, row0)"},
    {kDkv, "head_steps * p.call.heads_per_kv", "head_steps"},
    {kDkv, "return {first_head + head, (", "return {first_head, ("},
};

// A bias that batch entries and heads share, and a mask.
constexpr char kShared[] =
    "attention_backward bf16 b={0} h=2 nq=20 nk=36 d=16 layout=bnhd bias=fp32:2x1x20x36 "
    "mask=bool:{0}x1x20x36 dbias";
// A CTA of the bias's gradient is to sum several of them, and a GPU has hundreds of CTAs.
constexpr int kFew = 6, kMany = 272;
constexpr Mistake kBiasMistakes[] = {
    {kScores, "bias.template add<kWidth>(s, scale)", "bias.template add<kWidth>(s, 1.f)"},
    {kScores, "mask.template apply<kWidth>(s)", ""},
    // Rows past the end.
    {kDkv, "at.row0 + row < p.call.queries", "true"},
    {kScores, "(s[0][j][i] - lse) * kLog2E", "s[0][j][i] - lse"},
    // The keys of the operands in another order than those of the scores.
    {kProducts, "ldmatrix_x4(b, from + lanes.key_pair)",
     "ldmatrix_x4(b, from + (threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8) * T::kPitch + "
     "threadIdx.x / 8 % 2 * 16)"},
    {kDkv, "pair_key<T::kPermuted>(0, g),\n                    pair_key<T::kPermuted>(1, g)",
     "pair_key<T::kPermuted>(1, g), pair_key<T::kPermuted>(0, g)"},
    // Sums: a head, a batch entry or a part left out, or of the wrong entry; P in place of dS.
    {kDbias, "head + i % p.sharing_heads", "head"},
    {kDbias, "i / p.sharing_heads * p.dbias_batches", "i / p.sharing_heads"},
    {kDbias, "end = int((part + 1) * all / p.parts)", "end = int((part + 1) * all / p.parts) - 1"},
    {kDbias, "(p.parts, [&]", "(p.parts - 1, [&]"},
    {kDbias, "+= ds[0][j][i]", "+= s[0][j][i]"},
    {kDbias, "+= ds[0][j][i]", "= ds[0][j][i]"},
    {kDbias, "__ldg(p.delta + first + row)", "__ldg(p.delta + row)"},
    // Rounded to 16 bits before they are summed.
    {kDbias, "+= ds[0][j][i]", "+= __uint_as_float(__float_as_uint(ds[0][j][i]) & 0xffff0000u)"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr MissingWait kUnordered[] = {
    {"RowsOfDqNotWaitedFor",
     {kDq, "copy_wait<max_of(T::kStages - 1, 1)>();\n  __syncwarp();", "__syncwarp();"},
     "a race"},
    {"RowsOfDqReadByOtherLanes",
     {kDq, "copy_wait<max_of(T::kStages - 1, 1)>();\n  __syncwarp();",
      "copy_wait<max_of(T::kStages - 1, 1)>();"},
     "a race"},
    {"KeysNotWaitedFor", {kDq, "copy_wait<max_of(T::kStages - 2, 0)>();", ""}, "a race"},
    {"KeysOfOtherThreadsNotWaitedFor",
     {kDq, "    __syncthreads();  // this step's", "    // this step's"},
     "a race"},
    {"QueriesStillReadWhenStaged",
     {kDq, "  __syncwarp();  // its queries are no longer read\n", ""},
     "a race"},
    {"StagedDqNotWaitedFor", {kDq, "call.scale);\n  __syncwarp();", "call.scale);"}, "a race"},
    {"RowsNotWaitedFor", {kDkv, "copy_wait<max_of(T::kStages - 2, 0)>();", ""}, "a race"},
    {"RowsOfOtherThreadsNotWaitedFor",
     {kDkv, "    __syncthreads();  // this step's", "    // this step's"},
     "a race"},
    {"KeysStillReadWhenStaged", {kDkv, "  __syncwarp();  // its keys", "  // its keys"}, "a race"},
    {"StagedDkNotWaitedFor", {kDkv, "1.f);\n  __syncwarp();", "1.f);"}, "a race"},
    {"TilesOfDbiasNotWaitedFor", {kDbias, "copy_wait<max_of(T::kStages - 2, 0)>();", ""}, "a race"},
    {"TilesOfOtherThreadsNotWaitedFor",
     {kDbias, "    __syncthreads();  // these tiles", "    // these tiles"},
     "a race"},
};
// The same for keys and values that move to registers before the first step.
constexpr MissingWait kUnorderedKept[] = {
    {"KeysAndValuesNotWaitedFor",
     {kDkv, "copy_wait<max_of(T::kStages - 1, 1)>();\n  __syncthreads();", "__syncthreads();"},
     "a race"},
    {"KeysAndValuesOfOtherThreadsNotWaitedFor",
     {kDkv, "copy_wait<max_of(T::kStages - 1, 1)>();\n  __syncthreads();",
      "copy_wait<max_of(T::kStages - 1, 1)>();"},
     "a race"},
};
// The same for a single stage, which waits once more for its readers.
constexpr MissingWait kUnorderedSingle[] = {
    {"KeysStillRead",
     {kDq, "      __syncthreads();\n      stages.load(step + 1);", "      stages.load(step + 1);"},
     "a race"},
    {"RowsStillRead",
     {kDkv, "      __syncthreads();\n      stages.load(step + 1);", "      stages.load(step + 1);"},
     "a race"},
    {"TilesStillRead",
     {kDbias, "      __syncthreads();\n      stages.load(i + 1);", "      stages.load(i + 1);"},
     "a race"},
};

// A config of the family sm80: dq's warps, keys and stages, dkv's warps, groups, rows and stages,
// dbias' keys and stages.
Config config_of(const Problem& problem, int dq_stages, int dkv_stages, int dbias_stages) {
  Config config = Config::parse(
      "kFamily=0 kDqWarps=2 kDqKeys=32 kDqInRegisters=0 kDkvWarps=2 kDkvGroups=1 kDkvRows=32 "
      "kDkvInRegisters=0");
  config.set("kDqStages", dq_stages);
  config.set("kDkvStages", dkv_stages);
  config.set("kDbiasKeys", dbias_stages > 0 ? 32 : 0);
  config.set("kDbiasStages", dbias_stages);
  // Tunables of other families, if there are any.
  for (const Parameter& parameter : problem.op().family_of(config).parameters(problem)) {
    if (!config.find(parameter.name)) config.set(parameter.name, 0);
  }
  return config;
}

class AttentionBackwardGpuTest : public JudgedKernelsTest {};

// The defaults and some by chance.
std::vector<Config> configs_of(const Problem& problem, const DeviceInfo& device) {
  const ParameterSpace space = problem.op().space(problem, device);
  std::vector<Config> configs = problem.op().defaults(problem, device, space);
  std::vector<Config> all = space.enumerate();
  std::shuffle(all.begin(), all.end(), std::mt19937_64(20261128));
  all.resize(std::min(all.size(), kConfigsEach));
  configs.insert(configs.end(), all.begin(), all.end());
  return configs;
}

class AttentionBackwardConfigsGpuTest : public AttentionBackwardGpuTest,
                                        public testing::WithParamInterface<const char*> {};

TEST_P(AttentionBackwardConfigsGpuTest, ConfigsOfEveryKindMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam());
  Verifier verifier = verifier_of(problem);
  const std::vector<Config> configs = configs_of(*problem, device_);
  EXPECT_GE(configs.size(), 2u);
  for (const Config& config : configs) {
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

struct Mistaken {
  const char* name;
  const char* problem;
  int dbias_stages;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

class AttentionBackwardMistakesGpuTest : public AttentionBackwardGpuTest,
                                         public testing::WithParamInterface<Mistaken> {};

TEST_P(AttentionBackwardMistakesGpuTest, EachIsSeen) {
  const int batches = device_.name == "emulated device" ? kFew : kMany;
  const ProblemPtr problem = parse_problem(fmt::format(fmt::runtime(GetParam().problem), batches));
  const Config config = config_of(*problem, 2, 2, GetParam().dbias_stages);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionBackwardMistakesGpuTest,
                         testing::Values(Mistaken{"Plain", kPlain, 0, kPlainMistakes},
                                         Mistaken{"Causal", kCausal, 0, kCausalMistakes},
                                         Mistaken{"Bias", kShared, 2, kBiasMistakes}),
                         [](const auto& test) { return std::string(test.param.name); });

// All gradients of a call, byte by byte.
class AttentionBackwardRunsGpuTest : public AttentionBackwardGpuTest {
 protected:
  std::vector<std::byte> gradients(const ProblemPtr& problem, const CudaModule& module,
                                   const Config& config) const {
    Workload workload({*context_, *stream_, *kernels_, device_}, problem);
    workload.fill_inputs(kNormalDraw);
    PreparedPlan plan = prepare_plan(module, *problem, config, device_);
    const DeviceBuffer scratch(*driver_, static_cast<std::size_t>(plan.scratch_bytes()));
    BoundPlan(std::move(plan), workload.addresses(), scratch.address())(*stream_);
    stream_->synchronize();
    std::vector<std::byte> all;
    for (int tensor = kAttentionBackwardDq; tensor <= kAttentionBackwardDbias; ++tensor) {
      std::vector<std::byte> bytes = workload.download(tensor);
      // Without the guard behind it.
      bytes.resize(
          static_cast<std::size_t>(workload.tensors()[static_cast<std::size_t>(tensor)].bytes()));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

TEST_F(AttentionBackwardRunsGpuTest, TwoRunsGiveTheSameBits) {
  const ProblemPtr problem =
      parse_problem("attention_backward bf16 b=8 h=2 n=49 d=32 bias=bf16:1x2x49x49 dbias");
  for (const Config& config : configs_of(*problem, device_)) {
    const CompileResult result =
        compiler_->compile(problem->op().request(*problem, config, device_.arch()));
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    if (problem->op().prune(*problem, config, result.facts, device_)) continue;
    const CudaModule module(*driver_, result.cubin);
    const std::vector<std::byte> once = gradients(problem, module, config);
    EXPECT_TRUE(gradients(problem, module, config) == once) << config.text();
  }
}

class AttentionBackwardUnorderedGpuTest : public AttentionBackwardGpuTest,
                                          public testing::WithParamInterface<MissingWait> {
 protected:
  // Several steps of keys and of rows, several batch entries of a bias.
  void expect_race(int stages, bool keeps_keys = false) const {
    const ProblemPtr problem = parse_problem(
        "attention_backward bf16 b=9 h=1 n=97 d=16 layout=bnhd bias=bf16:97x97 dbias");
    Config config = config_of(*problem, stages, stages, std::min(stages, 2));
    config.set("kDkvInRegisters", keeps_keys ? 1 : 0);
    expect_fault(problem, config, GetParam().mistake, GetParam().fault);
  }
};
class AttentionBackwardSingleStageGpuTest : public AttentionBackwardUnorderedGpuTest {};
class AttentionBackwardKeptKeysGpuTest : public AttentionBackwardUnorderedGpuTest {};

TEST_P(AttentionBackwardUnorderedGpuTest, IsARaceOnTheEmulatedDevice) { expect_race(2); }
TEST_P(AttentionBackwardSingleStageGpuTest, IsARaceOnTheEmulatedDevice) { expect_race(1); }
TEST_P(AttentionBackwardKeptKeysGpuTest, IsARaceOnTheEmulatedDevice) { expect_race(2, true); }

INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardKeptKeysGpuTest,
                         testing::ValuesIn(kUnorderedKept),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(EachWait, AttentionBackwardSingleStageGpuTest,
                         testing::ValuesIn(kUnorderedSingle),
                         [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionBackwardConfigsGpuTest,
                         testing::ValuesIn(kProblems));

}  // namespace
}  // namespace vitune::attention_backward_gpu_test
