// tests/tuner/window_attention_backward_gpu_test.cpp -- Gradients of window attention against the
// fp64 judge: every form of windows and sums, equal bits in two runs, and mistakes that the judge
// must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generator/window_attention_backward/kernel_spec.h"
#include "generator/window_attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::window_attention_backward_gpu_test {
namespace {

struct GradientCase {
  const char* name;
  const char* problem;
};

void PrintTo(const GradientCase& each, std::ostream* out) { *out << each.problem; }

constexpr GradientCase kCases[] = {
    {"Swin",
     "window_attention_backward bf16 b=2 image=14x14 window=7 h=2 d=32 bias=bf16:1x2x49x49 dbias"},
    {"SwinShiftedTable",
     "window_attention_backward bf16 b=2 image=14x7 window=7 shift=3 h=1 d=32 bias=fp32:2x1x49x49 "
     "dtable=169"},
    {"ShiftedEachWindow",
     "window_attention_backward fp16 b=3 image=6x9 window=3 shift=1 h=2 d=8 bias=fp16:6x2x9x9 "
     "dbias"},
    {"ShiftedSummed",
     "window_attention_backward bf16 b=2 image=8x8 window=4 shift=2 h=3 d=24 bias=bf16:4x3x16x16 "
     "dbias=1x3x16x16"},
    {"Padded", "window_attention_backward bf16 b=2 image=9x13 window=4 h=2 d=16 padding"},
    {"PaddedWithZeros", "window_attention_backward fp16 b=1 image=5x8 window=3x4 h=2 d=16"},
    {"RolledThenPadded",
     "window_attention_backward fp16 b=2 image=10x11 window=4 shift=2 h=2 d=16 padding "
     "bias=fp16:9x1x16x16 dbias"},
    {"PaddedThenRolled",
     "window_attention_backward fp16 b=2 image=10x11 window=4 shift=2x1 h=2 d=16 padding pad_first "
     "bias=fp32:1x2x16x16 dtable=30"},
    {"Grid",
     "window_attention_backward bf16 b=2 image=8x12 window=4 h=2 d=32 grid layout=interleaved"},
    {"SeparateOddHeadSize",
     "window_attention_backward bf16 b=1 image=10x5 window=5 shift=1x2 h=2 d=40 layout=separate "
     "bias=bf16:1x1x25x25 dbias"},
    {"OnePixel", "window_attention_backward bf16 b=2 image=3x2 window=1 h=2 d=16"},
    {"SeveralSteps",
     "window_attention_backward bf16 b=2 image=6x12 window=6x12 h=1 d=16 scale=0.3 "
     "bias=bf16:1x1x72x72 dbias"},
};

class WindowAttentionBackwardGpuTest : public JudgedKernelsTest {};

class WindowAttentionBackwardConfigsGpuTest : public WindowAttentionBackwardGpuTest,
                                              public testing::WithParamInterface<GradientCase> {};

// The first and the last of the space, which differ in everything; kMinCtas moves no element.
TEST_P(WindowAttentionBackwardConfigsGpuTest, ConfigsFromBothEndsOfTheSpaceMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const ParameterSpace space = window_attention_backward().space(*problem, device_);
  std::vector<Config> configs = space.enumerate();
  std::erase_if(configs, [](const Config& config) {
    return config.at("kMinCtas") != 1 ||
           window_attention_backward().family_of(config).name() != "sm80";
  });
  ASSERT_GE(configs.size(), 2u);
  for (const Config& config : {configs.front(), configs.back()}) {
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, WindowAttentionBackwardConfigsGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// A problem with more windows of a head than CTAs, so that each of them adds up several: of so many
// images on the emulated device, which has few SMs, and on a GPU.
struct Batched {
  int emulated, real;
  const char* rest;

  std::string text(const DeviceInfo& device) const {
    const int images = device.name == "emulated device" ? emulated : real;
    return "window_attention_backward bf16 b=" + std::to_string(images) + " " + rest;
  }
};

constexpr char kWindows[] = "window_attention_backward/windows_sm80.cuh";
constexpr char kScores[] = "window_attention_backward/scores.cuh";
constexpr char kFinish[] = "window_attention_backward/finish.cuh";

// Rolled and padded, with a bias of each window that is summed over them, and padding's gradient;
// two steps of keys.
constexpr Batched kAll = {2, 2,
                          "image=8x9 window=5x7 shift=1x2 h=2 d=16 padding bias=bf16:4x2x35x35 "
                          "dbias=1x2x35x35"};
constexpr char kAllConfig[] = "kBlockN=32 kBuffers=1 kKeepsScores=1 kMinCtas=1 kWarps=1";
constexpr Mistake kMistakes[] = {
    // Addresses: k for v, another shift, a row too few, padding that has a dO.
    {kWindows, "source.v, 2", "source.v, 1"},
    {"window_attention/window_place.cuh", "at_x + p.shift_columns", "at_x + p.shift_rows"},
    {kWindows, "row0 + row >= T::kWindowKeys", "row0 + row >= T::kWindowKeys - 1"},
    {kWindows, "is_kept = there && (!T::kPadded || pixel >= 0)", "is_kept = there && pixel != 0"},
    // Softmax: the bias's scale, keys past the end, sums of earlier steps, delta.
    {kScores, "add<kWidth>(s, scale)", "add<kWidth>(s, 1.f)"},
    {kScores, "if constexpr (kEdge) mask_scores", "if constexpr (false) mask_scores"},
    {kScores, "sum[half] *= factor;", ""},
    {kScores, "product[half] *= factor;", ""},
    {kScores, "ds[0][j][i] - delta[i / 2]", "ds[0][j][i] - delta[0]"},
    // Products: scales, the wrong operand, keys of another order.
    {kWindows, "lane % 4, dk, p.forward.call.scale", "lane % 4, dk, 1.f"},
    {kWindows, "(dk, ds, rows.queries", "(dk, weights, rows.queries"},
    {kWindows, "key = key0 + lane / 8 % 2 * 8", "key = key0"},
};

// The same of smaller windows; sums in scratch memory.
constexpr Batched kSums = {
    3, 1200, "image=4x7 window=3x6 shift=1x2 h=2 d=64 padding bias=bf16:4x2x18x18 dbias=1x2x18x18"};
constexpr char kSumsConfig[] = "kBlockN=32 kBuffers=2 kKeepsScores=1 kMinCtas=1 kWarps=1";
constexpr Mistake kMistakesOfSums[] = {
    // dbias of the last window alone, without one part, of another head.
    {kWindows, "is_first ? ds[0][j][i] : *at + ds[0][j][i]", "ds[0][j][i]"},
    {kFinish, "p.parts * sharing, [&]", "(p.parts - 1) * sharing, [&]"},
    {kFinish, "i64(window * heads + head)", "i64(window * heads)"},
    // Padding's: dv for dk, without the scale, of keys that are there, of one half of the rows.
    {kFinish, "(2 * cta + which - 1)", "(2 * cta + 2 - which)"},
    {kWindows, "dk[n][2 + e], p.forward.call.scale", "dk[n][2 + e], 1.f"},
    {kWindows, "place.pixel(p.forward, key) < 0", "true"},
    {kWindows, "(is_padding[1] ? second : 0.f)", "0.f"},
    {kFinish, "cta += heads", "cta += 2 * heads"},
};

// Heads of two groups; sums in registers.
constexpr Batched kTable = {7, 2400, "image=4x8 window=4 h=10 d=8 bias=bf16:1x10x16x16 dtable=9"};
constexpr char kTableConfig[] = "kBlockN=16 kBuffers=2 kKeepsScores=0 kMinCtas=1 kWarps=1";
constexpr Mistake kMistakesOfTables[] = {
    {kFinish, "rows[at] != row", "rows[at] < row"},
    {kFinish, "p.dbias[i64(head0 + i) * kEach", "p.dbias[i64(head0) * kEach"},
    {kFinish, "first < kEach; first += 4", "first < kEach - 16; first += 4"},
    {kFinish, "int(four.z)", "int(four.y)"},
    {kFinish, "sum += shared[each][i]", "sum = shared[each][i]"},
    {kWindows, "sums[j][i] += ds[0][j][i]", "sums[j][i] = ds[0][j][i]"},
    {kWindows, "pack_keys<T, 16>(gradients, ds, 0)", "pack_keys<T, 16>(gradients, s, 0)"},
    {kWindows, "load_shared(at + 8)", "load_shared(at + 4)"},
};

struct Mistaken {
  const char* name;
  Batched problem;
  const char* config;
  std::span<const Mistake> mistakes;
};
void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.name; }

class WindowAttentionBackwardMistakesGpuTest : public WindowAttentionBackwardGpuTest,
                                               public testing::WithParamInterface<Mistaken> {};

TEST_P(WindowAttentionBackwardMistakesGpuTest, EachIsSeen) {
  const ProblemPtr problem = parse_problem(GetParam().problem.text(device_));
  const Config config = Config::parse(GetParam().config);
  ASSERT_EQ(window_attention_backward().space(*problem, device_).explain(config), std::nullopt);
  expect_seen(problem, config, GetParam().mistakes);
}

INSTANTIATE_TEST_SUITE_P(Of, WindowAttentionBackwardMistakesGpuTest,
                         testing::Values(Mistaken{"Gradients", kAll, kAllConfig, kMistakes},
                                         Mistaken{"Sums", kSums, kSumsConfig, kMistakesOfSums},
                                         Mistaken{"Tables", kTable, kTableConfig,
                                                  kMistakesOfTables}),
                         [](const auto& test) { return std::string(test.param.name); });

// Each of these leaves out a wait that orders accesses to shared memory: two warps, with P and dS
// in shared memory, more windows than CTAs.
constexpr char kManyWindows[] =
    "window_attention_backward bf16 b=12 image=9x12 window=5x4 h=1 d=8 padding "
    "bias=bf16:1x1x20x20 dbias";
constexpr MissingWait kUnordered[] = {
    {"RowsNotWaitedFor", {kWindows, "copy_wait<T::kBuffers - 1>();", ""}, "a race"},
    {"RowsOfOtherThreads", {kWindows, "__syncthreads();  // all rows", "// all rows"}, "a race"},
    {"ScoresOfOtherWarps", {kWindows, "__syncthreads();  // P and dS", "// P and dS"}, "a race"},
    {"RowsStillRead", {kWindows, "__syncthreads();  // all has", "// all has"}, "a race"},
    {"StagedDq",
     {kWindows, "sums, p.forward.call.scale);\n      __syncwarp();",
      "sums, p.forward.call.scale);"},
     "a race"},
    {"StagedDk", {kWindows, "dv, 1.f);\n      __syncwarp();", "dv, 1.f);"}, "a race"},
};
// The same for a warp that has several tiles, and for keys that are read once more before dk takes
// their places.
constexpr MissingWait kUnorderedAgain[] = {
    {"StagingStillRead", {kWindows, "__syncwarp();  // the rows of", "// the rows of"}, "a race"},
    {"KeysStillRead",
     {kWindows, "__syncwarp();\n      stage_sums<T>(rows.keys", "stage_sums<T>(rows.keys"},
     "a race"},
};

// And of the sums of a table, which warps leave each other: there warps run one after the other.
constexpr MissingWait kUnorderedTable[] = {
    {"SumsOfOtherWarps", {kFinish, "__syncthreads();", ""}, "erred by .* at dtable"}};

class WindowAttentionBackwardUnorderedGpuTest : public WindowAttentionBackwardGpuTest,
                                                public testing::WithParamInterface<MissingWait> {
 protected:
  void expect_race(const char* config) const {
    expect_fault(parse_problem(kManyWindows), Config::parse(config), GetParam().mistake,
                 GetParam().fault);
  }
};
class WindowAttentionBackwardAgainGpuTest : public WindowAttentionBackwardUnorderedGpuTest {};
class WindowAttentionBackwardTableGpuTest : public WindowAttentionBackwardUnorderedGpuTest {};

TEST_P(WindowAttentionBackwardUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  expect_race("kBlockN=32 kBuffers=1 kKeepsScores=1 kMinCtas=1 kWarps=2");
}
TEST_P(WindowAttentionBackwardAgainGpuTest, IsARaceOnTheEmulatedDevice) {
  expect_race("kBlockN=32 kBuffers=1 kKeepsScores=0 kMinCtas=1 kWarps=1");
}

TEST_P(WindowAttentionBackwardTableGpuTest, IsWrongOnTheEmulatedDevice) {
  expect_fault(parse_problem(kTable.text(device_)), Config::parse(kTableConfig), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, WindowAttentionBackwardTableGpuTest,
                         testing::ValuesIn(kUnorderedTable),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(EachWait, WindowAttentionBackwardUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(EachWait, WindowAttentionBackwardAgainGpuTest,
                         testing::ValuesIn(kUnorderedAgain),
                         [](const auto& test) { return std::string(test.param.name); });

// All gradients of a call, byte by byte.
class WindowAttentionBackwardRunsGpuTest : public WindowAttentionBackwardGpuTest {
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
    for (int tensor = kWindowBackwardDq; tensor <= kWindowBackwardDpadding; ++tensor) {
      const TensorSpec& spec = workload.tensors()[static_cast<std::size_t>(tensor)];
      if (!spec.given) continue;
      std::vector<std::byte> bytes = workload.download(tensor);
      // Without the guard behind it.
      bytes.resize(static_cast<std::size_t>(spec.bytes()));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

TEST_F(WindowAttentionBackwardRunsGpuTest, TwoRunsGiveTheSameBits) {
  const ProblemPtr problem = parse_problem(kAll.text(device_));
  const ParameterSpace space = problem->op().space(*problem, device_);
  for (const Config& config : problem->op().defaults(*problem, device_, space)) {
    const CompileResult result =
        compiler_->compile(problem->op().request(*problem, config, device_.arch()));
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    const CudaModule module(*driver_, result.cubin);
    const std::vector<std::byte> once = gradients(problem, module, config);
    EXPECT_TRUE(gradients(problem, module, config) == once) << config.text();
  }
}

}  // namespace
}  // namespace vitune::window_attention_backward_gpu_test
