// tests/tuner/packed_attention_gpu_test.cpp -- The kernels of packed attention against the fp64
// judge: short and long sequences, empty ones, keys with offsets of their own, every type; and
// mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/packed_attention/kernel_spec.h"
#include "generator/packed_attention/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::packed_attention_gpu_test {
namespace {

struct PackedCase {
  const char* name;
  const char* problem;
};

void PrintTo(const PackedCase& each, std::ostream* out) { *out << each.problem; }

constexpr PackedCase kCases[] = {
    {"Windows", "packed_attention bf16 h=2 d=80 lengths=64x3,16,32"},
    {"Images", "packed_attention bf16 h=2 d=72 lengths=130,64,7,250"},
    {"OneToken", "packed_attention fp16 h=3 d=8 lengths=1x5"},
    {"OneSequence", "packed_attention fp16 h=1 d=64 lengths=200 lse"},
    {"SharedKeys", "packed_attention bf16 h=4 hkv=2 d=16 lengths=40,0,33 lse"},
    {"Causal", "packed_attention bf16 h=2 d=32 lengths=100,3,64 causal lse"},
    {"OwnKeys", "packed_attention bf16 h=2 d=24 lengths=33,20 lengths_k=70,9"},
    {"OwnKeysCausal",
     "packed_attention fp16 h=2 d=128 lengths=33,20,5 lengths_k=70,9,0 causal lse scale=0.3"},
    {"Views", "packed_attention bf16 h=2 d=40 q=240x120 k=80x40 v=96x48 lengths=31,32"},
};

// CTAs that walk, one after the other, over more items than the emulated device has room for.
constexpr char kWalked[] = "packed_attention bf16 h=7 d=24 lengths=70x4,5,0,33";
constexpr char kSmallSm80[] =
    "kSwizzle=0 kProducer=0 kWarps=2 kRowTiles=1 kBlockN=32 kStages=2 kQueryInRegisters=1 "
    "kMinCtas=1 kPersistent=1";
constexpr char kSmallSm90[] =
    "kSwizzle=64 kProducer=0 kWarps=8 kRowTiles=1 kBlockN=32 kStages=2 kQueryInRegisters=0 "
    "kMinCtas=1 kPersistent=1";
constexpr char kSmallPipelined[] =
    "kSwizzle=64 kProducer=2 kWarps=8 kRowTiles=1 kBlockN=32 kStages=2 kQueryInRegisters=0 "
    "kMinCtas=1 kPersistent=1";

class PackedAttentionGpuTest : public JudgedKernelsTest {};

class PackedAttentionConfigsGpuTest : public PackedAttentionGpuTest,
                                      public testing::WithParamInterface<PackedCase> {};

// Some configs from all of the space of each family; kMinCtas moves no element.
TEST_P(PackedAttentionConfigsGpuTest, ConfigsFromAllOverTheSpaceMatchTheReference) {
  constexpr std::size_t kMost = 3;
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const ParameterSpace space = packed_attention().space(*problem, device_);
  for (const Family* const family : packed_attention().families()) {
    std::vector<Config> configs = space.enumerate(family->name());
    std::erase_if(configs, [](const Config& config) { return config.at("kMinCtas") != 1; });
    if (family->refusal(*problem, device_)) continue;
    const std::size_t some = std::min(kMost, configs.size());
    ASSERT_GE(some, 2u);
    for (std::size_t i = 0; i < some; ++i) {
      const Config& config = configs[i * (configs.size() - 1) / (some - 1)];
      EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, PackedAttentionConfigsGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Sequences in more than one round of a scan, keys elsewhere than queries.
constexpr char kManySequences[] =
    "packed_attention bf16 h=4 hkv=2 d=16 lengths=3x140,40 lengths_k=2x140,50 causal lse";

constexpr Mistake kMistakes[] = {
    {"packed_attention/sequences.cuh", "min(end - begin, longest)",
     "min(end - begin + 1, longest)"},
    {"packed_attention/sequences.cuh", "key = item.keys.begin", "key = item.queries.begin"},
    {"packed_attention/sequences.cuh", "quotient(item.head, p.call.by_heads_per_kv)", "item.head"},
    {"packed_attention/sequences.cuh", "own.keys = item.keys.count",
     "own.keys = item.queries.count"},
    {"packed_attention/sequences.cuh", "item.keys.count - item.queries.count : 0", "0 : 0"},
    {"packed_attention/sequences.cuh", "i64(item.head) * p.call.queries + query", "query"},
    {"packed_attention/config.cuh", "kMayBeEmpty = true", "kMayBeEmpty = false"},
};

TEST_F(PackedAttentionGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(kManySequences);
  const Config config = Config::parse(kSmallSm80);
  ASSERT_EQ(packed_attention().space(*problem, device_).explain(config), std::nullopt);
  expect_seen(problem, config, kMistakes);
}

// Tiles by tensor maps, each where it belongs; and rows whose weights outgrow fp32.
constexpr Mistake kMappedMistakes[] = {
    {"packed_attention/packed_sm90_pipelined.cuh", "item.keys.begin + key0", "key0"},
    {"packed_attention/packed_sm90_pipelined.cuh", "item.queries.begin + row", "row"},
    {"packed_attention/packed_sm90_pipelined.cuh", "rows.head, 0);", "0, 0);"},
    {"packed_attention/packed_sm90_pipelined.cuh", "atom * Tile::kAtomColumns,", "0,"},
    {"packed_attention/packed_sm90_pipelined.cuh", "again |= group.overflowed()", "again = false"},
    {"packed_attention/packed_sm90_pipelined.cuh", "if (row0 >= own.queries || own.keys == 0)",
     "if (row0 >= 64 || own.keys == 0)"},
};

TEST_F(PackedAttentionGpuTest, MistakesOfMappedTilesAreSeen) {
  const ProblemPtr problem = parse_problem("packed_attention bf16 h=3 d=40 lengths=130,64,7,250");
  const Config config = Config::parse(kSmallPipelined);
  if (packed_attention().family_of(config).refusal(*problem, device_)) GTEST_SKIP();
  ASSERT_EQ(packed_attention().space(*problem, device_).explain(config), std::nullopt);
  expect_seen(problem, config, kMappedMistakes);
}

// Neighbours' rows in the place of zeros: weights of 0 meet a NaN.
struct TailCase {
  const char* config;
  Mistake mistake;
};

constexpr TailCase kTails[] = {
    {kSmallSm80,
     {"attention/forward_sm80.cuh", "const int left = (T::kKeys > 0 ? T::kKeys : p.keys) - key0;",
      "const int left = p.keys + 8 - key0;"}},
    {kSmallSm90,
     {"attention/forward_sm90.cuh", "left = total() - key0;", "left = total() + 8 - key0;"}},
    {kSmallPipelined,
     {"packed_attention/packed_sm90_pipelined.cuh", "rows.step, rows.count,",
      "rows.step, rows.count + 8,"}},
    {kSmallPipelined,
     {"packed_attention/packed_sm90_pipelined.cuh", "if (kRows <= rows.count) {",
      "if (kRows <= rows.count + 8) {"}},
};

// fp16: a kernel that holds a reference would take the NaN for a weight that outgrew fp32.
TEST_F(PackedAttentionGpuTest, ANeighboursRowsAreSeen) {
  const ProblemPtr problem = parse_problem("packed_attention fp16 h=7 d=24 lengths=70x4,5,0,33");
  for (const TailCase& each : kTails) {
    const Config config = Config::parse(each.config);
    if (packed_attention().family_of(config).refusal(*problem, device_)) continue;
    ASSERT_EQ(packed_attention().space(*problem, device_).explain(config), std::nullopt);
    expect_seen(problem, config, {&each.mistake, 1});
  }
}

struct WaitCase {
  const char* name;
  const char* config;
  Mistake mistake;
};

void PrintTo(const WaitCase& each, std::ostream* out) { *out << each.name; }

constexpr char kPipelined[] = "packed_attention/packed_sm90_pipelined.cuh";
constexpr WaitCase kWaits[] = {
    {"Sm80BetweenItems",
     kSmallSm80,
     {"packed_attention/packed_sm80.cuh", "p, [] { __syncthreads(); },", "p, [] {},"}},
    {"Sm90BetweenItems",
     kSmallSm90,
     {"packed_attention/packed_sm90.cuh", "p, [] { __syncthreads(); },", "p, [] {},"}},
    {"Sm90Tiles",
     kSmallSm90,
     {"packed_attention/packed_sm90.cuh", "__syncthreads();  // this step's", "// this step's"}},
    {"Sm90Copies",
     kSmallSm90,
     {"packed_attention/packed_sm90.cuh", "copy_wait<T::kStages - 2>();", ""}},
    {"PipelinedKeysEmpty",
     kSmallPipelined,
     {kPipelined, "mbarrier_wait(shared.keys_empty(at.index), at.phase ^ 1);", ""}},
    {"PipelinedValuesEmpty",
     kSmallPipelined,
     {kPipelined, "mbarrier_wait(shared.values_empty(at.index), at.phase ^ 1);", ""}},
    {"PipelinedQueriesEmpty",
     kSmallPipelined,
     {kPipelined, "mbarrier_wait(shared.queries_empty(query_at.index), query_at.phase ^ 1);", ""}},
    {"PipelinedQueriesFull",
     kSmallPipelined,
     {kPipelined, "mbarrier_wait(shared.queries_full(warpgroup), query_phase);", ""}},
    {"PipelinedKeysFull", kSmallPipelined, {kPipelined, "tiles.wait_for_keys();", ""}},
    {"PipelinedValuesFull", kSmallPipelined, {kPipelined, "tiles.wait_for_values();", ""}},
};

class PackedAttentionRacesGpuTest : public PackedAttentionGpuTest,
                                    public testing::WithParamInterface<WaitCase> {};

TEST_P(PackedAttentionRacesGpuTest, AMissingWaitIsAFaultOfTheEmulatedDevice) {
  const WaitCase& each = GetParam();
  expect_fault(parse_problem(kWalked), Config::parse(each.config), each.mistake,
               "a race|without fence.proxy.async");
}

INSTANTIATE_TEST_SUITE_P(Waits, PackedAttentionRacesGpuTest, testing::ValuesIn(kWaits),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::packed_attention_gpu_test
