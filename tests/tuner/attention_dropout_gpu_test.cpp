// tests/tuner/attention_dropout_gpu_test.cpp -- Attention with dropout and its gradients against
// the fp64 judge, which draws with code of its own: configs of every family on problems of every
// form, mistakes that the judge must see, and waits that are left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tuner/judged_kernels.h"

namespace vitune::attention_dropout_gpu_test {
namespace {

// Tails of rows and keys, head sizes of whole and half steps, shared keys, causal, copies of every
// width, shares from few to most.
constexpr const char* kProblems[] = {
    "attention bf16 b=2 h=2 n=50 d=64 dropout=0.1 lse",
    "attention fp16 b=1 h=2 nq=33 nk=200 d=32 layout=bhnd dropout=0.5 lse",
    "attention bf16 b=1 h=4 hkv=2 nq=140 nk=177 d=24 causal dropout=0.2 lse align=8",
    "attention bf16 b=1 h=1 nq=17 nk=70 d=8 layout=bnhd dropout=0.9 lse align=2",
    "attention fp16 b=1 h=1 nq=40 nk=130 d=128 dropout=0.1 lse",
    "attention_backward bf16 b=2 h=2 n=50 d=64 dropout=0.1",
    "attention_backward fp16 b=1 h=2 nq=33 nk=70 d=32 layout=bhnd do=bhnd dropout=0.5",
    "attention_backward bf16 b=1 h=4 hkv=2 nq=40 nk=77 d=24 causal dropout=0.2 align=8",
    "attention_backward bf16 b=1 h=1 n=35 d=128 layout=bnhd dropout=0.9",
    "attention_backward bf16 b=2 h=3 nq=107 nk=200 d=72 dropout=0.3",
};
constexpr std::size_t kDefaults = 3;     // at most
constexpr std::size_t kConfigsEach = 2;  // of a family, by chance

constexpr char kDraw[] = "attention/dropout.cuh";
constexpr char kPhilox[] = "attention/philox.cuh";
constexpr char kSm80[] = "attention/forward_sm80_dropout.cuh";
constexpr char kPipelined[] = "attention/forward_sm90_pipelined_dropout.cuh";
constexpr char kBackward[] = "attention_backward/dropout_sm80.cuh";
constexpr char kBackwardSm90[] = "attention_backward/dropout_sm90.cuh";
constexpr char kOnePass[] = "attention_backward/one_pass_sm90.cuh";
constexpr char kOnePassDropout[] = "attention_backward/one_pass_dropout_sm90.cuh";
constexpr char kDqSm90[] = "attention_backward/dq_sm90.cuh";
constexpr char kDkvSm90[] = "attention_backward/dkv_sm90.cuh";

// Mistakes in the draw, whatever the kernel: numbers of another generator, seed, offset, head or
// threshold, rows and keys exchanged, bytes of the other thread's cell.
constexpr Mistake kOfTheDraw[] = {
    {kPhilox, "round < 7", "round < 6"},
    {kPhilox, "key0 += 0x9e3779b9u", "key0 += 0x9e3779b8u"},
    {kPhilox, "^ c[1] ^ key0", "^ key0"},
    {kDraw, "key1 = seed.y + at.y", "key1 = seed.y"},
    {kDraw, "offset = at.x", "offset = seed.x"},
    {kDraw, "head = u32(head_index)", "head = 0"},
    {kDraw, "(256u - dropout.threshold)", "(257u - dropout.threshold)"},
    {kDraw, "kept[i] | complement", "kept[i]"},
};
constexpr Mistake kOfRows[] = {
    {kDraw, "row0 / 4 + lane / 8, key0 / 4 + second + lane % 4",
     "key0 / 4 + second + lane % 4, row0 / 4 + lane / 8"},
    {kDraw, "words[0][half] = is_odd ? theirs : mine", "words[0][half] = mine"},
    {kDraw, "is_odd ? kept[2 + half] : kept[half]", "kept[half]"},
};
constexpr Mistake kOfSm80[] = {
    {kSm80, "row0 + 16 * r, key0", "row0 + 16 * r + 16, key0"},
    {kSm80, "key0 + 8 * tile)", "8 * tile)"},
    {kSm80, "% 4] *= scale", "% 4] *= 1.f"},
    {kSm80, "(s, t, r, half) & kept[r].pair(tile % 4, half)", "(s, t, r, half)"},
    {kSm80, "kept[r].pair(tile % 4, half)", "kept[r].pair(tile % 4 ^ 1, half)"},
    {kSm80, "at.batch * p.heads + at.head", "at.head"},
};
constexpr Mistake kOfPipelined[] = {
    {kPipelined, "key0 + 8 * j)", "8 * j)"},
    {kPipelined, "this->place.row0, key0", "this->place.row0 + 16, key0"},
    {kPipelined, "% 4] *= scale", "% 4] *= 1.f"},
    {kPipelined, "E::pack(x, y) & kept.pair(j % 4, half)", "E::pack(x, y)"},
    {kPipelined, "kept.pair(j % 4, half)", "kept.pair(j % 4, 1 - half)"},
    {kPipelined, "at.batch * p.heads + at.head", "at.head"},
};
// Forward's draw forgotten in a pass, another one in a pass, the scale left out.
constexpr Mistake kOfBackward[] = {
    {kBackward, "drop(ds, kept);", ""},
    {kBackward, "drop(s, kept);", ""},
    {kBackward, "this->place.row0, key0);\n    drop", "this->place.row0, key0 + 16);\n    drop"},
    {kBackward, "this->place.row0, key0);\n    drop", "this->place.row0 + 16, key0);\n    drop"},
    {kBackward, "kept.value(j, i)", "kept.value(j, i ^ 1)"},
    {kBackward, "kept.value(j, i)", "kept.value(j, i ^ 2)"},
    {kBackward, "kept_scale = backward_dropout_of(p).scale", "kept_scale = 1.f"},
    {kBackward, "at.batch * p.heads + at.head", "at.head"},
};

constexpr Mistake kOfBackwardSm90[] = {
    {kBackwardSm90, "__fmaf_rn(dp, factor(at)", "__fmaf_rn(dp, 1.f"},
    {kBackwardSm90, "weight * factor(at)", "weight"},
    {kBackwardSm90, "Pass::kStep + 32 * i);", "Pass::kStep + 32 * i + 16);"},
    {kBackwardSm90, "Pass::kStep + 32 * i);", "Pass::kStep);"},
    {kBackwardSm90, "value(at / 4 % 4, at % 4)", "value(at / 4 % 4, at % 4 ^ 1)"},
    {kBackwardSm90, "(is_odd ? 4 : 0)", "0"},
    {kBackwardSm90, "sixteens[1] = is_odd ? mine : other", "sixteens[1] = other"},
    {kBackwardSm90, "int word = 2 * (i % 2) + tile % 2", "int word = 2 * (tile % 2) + i % 2"},
    {kBackwardSm90, "odd_bytes = is_odd ? 0x1111u : 0u", "odd_bytes = 0u"},
    {kDqSm90, "begin_head(rows, item.head_index)", "begin_head(rows, item.head)"},
    {kDkvSm90, "begin_head(rows, item.batch * p.call.heads + item.head * p.call.heads_per_kv + i)",
     "begin_head(rows, item.batch * p.call.heads)"},
    {kBackwardSm90, "row0 + int(threadIdx.x) / kWarpSize % 4 * 16", "row0"},
};

constexpr Mistake kOfOnePass[] = {
    {kOnePass, "E::pack(kept.weight(s[pair], pair),", "E::pack(s[pair],"},
    {kOnePass, "i, deltas[i], kept);", "i, deltas[i], AllKept());"},
    {kOnePass, "begin_block(batch * p.call.heads + head,", "begin_block(head,"},
    {kOnePass, "index * T::kBlockKeys + group() * kGroupRows + 16 * warp());",
     "group() * kGroupRows + 16 * warp());"},
    {kOnePassDropout, "key0_ = key0;", "key0_ = 0;"},
    {kOnePassDropout, "query0 + 32 * i);", "query0 + 32 * i + 16);"},
    {kOnePassDropout, "query0 + 32 * i);", "32 * i);"},
    {kOnePassDropout, "__float_as_uint(dropout_.scale)", "__float_as_uint(1.f)"},
};

// Kernels that mistakes are made in: several batch entries and heads, steps of rows and of keys.
struct Mistaken {
  const char* name;
  const char* problem;
  const char* config;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

constexpr char kForward[] = "attention bf16 b=2 h=2 nq=70 nk=100 d=16 layout=bnhd dropout=0.3 lse";
constexpr char kGradients[] =
    "attention_backward bf16 b=2 h=2 nq=70 nk=100 d=16 layout=bnhd dropout=0.3";
constexpr char kSm80Config[] = "kWarps=2 kBlockN=32 kStages=2 kRowTiles=1 kQueryInRegisters=1";
constexpr char kPipelinedConfig[] =
    "kWarps=8 kBlockN=64 kStages=2 kSwizzle=32 kProducer=2 kConstantKeys=1 kPersistent=1 "
    "kQueryInRegisters=0";
constexpr char kBackwardConfig[] =
    "kFamily=0 kDqWarps=2 kDqKeys=32 kDqStages=2 kDqInRegisters=0 kDkvWarps=2 kDkvGroups=2 "
    "kDkvRows=32 kDkvStages=2 kDkvInRegisters=0 kDbiasKeys=0 kDbiasStages=0";

// With what other families have.
Config whole(const Problem& problem, const char* text) {
  Config config = Config::parse(text);
  for (const Parameter& parameter : problem.op().family_of(config).parameters(problem)) {
    if (!config.find(parameter.name)) config.set(parameter.name, parameter.values.front());
  }
  return config;
}

constexpr char kBackwardSm90Config[] = "kFamily=1 kGroups=2 kKeyStep=32 kQueryStep=48 kStages=2";

// Two blocks of keys, two steps of queries.
constexpr char kOnePassGradients[] =
    "attention_backward bf16 b=2 h=2 nq=70 nk=150 d=32 layout=bnhd dropout=0.3";
constexpr char kOnePassConfig[] = "kFamily=4 kQueryStep=48 kStages=2 kKeyStages=2";

class AttentionDropoutGpuTest : public JudgedKernelsTest {};

// The first defaults, and some of each family by chance.
std::vector<Config> configs_of(const Problem& problem, const DeviceInfo& device) {
  const ParameterSpace space = problem.op().space(problem, device);
  std::vector<Config> configs = problem.op().defaults(problem, device, space);
  configs.resize(std::min(configs.size(), kDefaults));
  std::vector<Config> all = space.enumerate();
  std::shuffle(all.begin(), all.end(), std::mt19937_64(20261129));
  std::multiset<std::string_view> taken;
  for (const Config& config : all) {
    const std::string_view family = problem.op().family_of(config).name();
    if (taken.count(family) == kConfigsEach) continue;
    taken.insert(family);
    configs.push_back(config);
  }
  return configs;
}

class AttentionDropoutConfigsGpuTest : public AttentionDropoutGpuTest,
                                       public testing::WithParamInterface<const char*> {};

TEST_P(AttentionDropoutConfigsGpuTest, ConfigsOfEveryFamilyMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam());
  Verifier verifier = verifier_of(problem);
  const std::vector<Config> configs = configs_of(*problem, device_);
  EXPECT_GE(configs.size(), 2u);
  for (const Config& config : configs) {
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, AttentionDropoutConfigsGpuTest,
                         testing::ValuesIn(kProblems));

class AttentionDropoutMistakesGpuTest : public AttentionDropoutGpuTest,
                                        public testing::WithParamInterface<Mistaken> {};

TEST_P(AttentionDropoutMistakesGpuTest, EachIsSeen) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  const Config config = whole(*problem, GetParam().config);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(
    Of, AttentionDropoutMistakesGpuTest,
    testing::Values(Mistaken{"TheDraw", kForward, kSm80Config, kOfTheDraw},
                    Mistaken{"TheDrawOfGradients", kGradients, kBackwardConfig, kOfTheDraw},
                    Mistaken{"Rows", kForward, kSm80Config, kOfRows},
                    Mistaken{"Sm80", kForward, kSm80Config, kOfSm80},
                    Mistaken{"Pipelined", kForward, kPipelinedConfig, kOfPipelined},
                    Mistaken{"Backward", kGradients, kBackwardConfig, kOfBackward},
                    Mistaken{"BackwardSm90", kGradients, kBackwardSm90Config, kOfBackwardSm90},
                    Mistaken{"OnePass", kOnePassGradients, kOnePassConfig, kOfOnePass}),
    [](const auto& test) { return std::string(test.param.name); });

// The waits are those of the kernels without dropout, which are all left out in their own tests:
// here some, to see that the kernels with it are made of the same ones.
struct Unordered {
  const char* name;
  const char* problem;
  const char* config;
  Mistake mistake;
};
void PrintTo(const Unordered& each, std::ostream* out) { *out << each.name; }

class AttentionDropoutUnorderedGpuTest : public AttentionDropoutGpuTest,
                                         public testing::WithParamInterface<Unordered> {};

TEST_P(AttentionDropoutUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  expect_fault(problem, whole(*problem, GetParam().config), GetParam().mistake, "a race");
}

INSTANTIATE_TEST_SUITE_P(
    EachWait, AttentionDropoutUnorderedGpuTest,
    testing::Values(
        Unordered{"KeysOfSm80",
                  kForward,
                  kSm80Config,
                  {"attention/forward_sm80.cuh", "copy_wait<max_of(T::kStages - 2, 0)>();", ""}},
        Unordered{
            "KeysOfPipelined",
            kForward,
            kPipelinedConfig,
            {"attention/forward_sm90_pipelined.cuh",
             "  mbarrier_wait(shared.keys_full(at.index), at.phase);\n    order.wait();", ""}},
        Unordered{
            "KeysOfDq",
            kGradients,
            kBackwardConfig,
            {"attention_backward/dq_sm80.cuh", "copy_wait<max_of(T::kStages - 2, 0)>();", ""}},
        Unordered{
            "RowsOfDkv",
            kGradients,
            kBackwardConfig,
            {"attention_backward/dkv_sm80.cuh", "copy_wait<max_of(T::kStages - 2, 0)>();", ""}},
        Unordered{"KeysOfDqSm90",
                  kGradients,
                  kBackwardSm90Config,
                  {kDqSm90, "mbarrier_wait(rows.shared.full(slot), rows.at.phase);", ""}},
        Unordered{"RowsOfDkvSm90",
                  kGradients,
                  kBackwardSm90Config,
                  {kDkvSm90, "mbarrier_wait(rows.shared.full(slot), rows.at.phase);", ""}},
        Unordered{
            "StepsOfOnePass",
            kOnePassGradients,
            kOnePassConfig,
            {kOnePass, "mbarrier_wait(shared.full(slot), at.phase);\n    multiply", "multiply"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::attention_dropout_gpu_test
