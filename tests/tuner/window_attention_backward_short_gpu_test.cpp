// tests/tuner/window_attention_backward_short_gpu_test.cpp -- Gradients of window attention of the
// family sm80_short against the fp64 judge: warps with one group of rows and with several, every
// form of windows and sums that it serves; mistakes that the judge must see; and each wait left
// out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "generator/window_attention_backward/kernel_spec.h"
#include "generator/window_attention_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::window_attention_backward_short_gpu_test {
namespace {

struct Blocks {
  std::int64_t warps, buffers;
};

Config config_of(const Blocks& b) {
  return {{"kBlockN", 0},
          {"kBuffers", b.buffers},
          {"kKeepsScores", 0},
          {"kMinCtas", 1},
          {"kWarps", b.warps}};
}

struct ShortCase {
  const char* name;
  const char* problem;  // what follows the operator's name
  Blocks blocks;
};

void PrintTo(const ShortCase& each, std::ostream* out) { *out << each.problem; }

std::string text_of(const char* problem) {
  return std::string("window_attention_backward ") + problem;
}

const ShortCase kCases[] = {
    {"Swin", "bf16 b=2 image=14x14 window=7 h=2 d=32 bias=bf16:1x2x49x49 dbias", {4, 1}},
    {"SwinTwoGroups", "bf16 b=2 image=14x14 window=7 h=2 d=32 bias=bf16:1x2x49x49", {2, 2}},
    {"SwinShiftedTable",
     "bf16 b=2 image=14x7 window=7 shift=3 h=1 d=32 bias=fp32:2x1x49x49 dtable=169",
     {4, 2}},
    {"ShiftedEachWindow",
     "fp16 b=3 image=6x9 window=3 shift=1 h=2 d=8 bias=fp16:6x2x9x9 dbias",
     {1, 1}},
    {"ShiftedSummed",
     "bf16 b=40 image=8x8 window=4 shift=2 h=3 d=24 bias=bf16:4x3x16x16 dbias=1x3x16x16",
     {1, 2}},
    {"Grid", "bf16 b=2 image=8x12 window=4 h=2 d=32 grid layout=interleaved", {1, 1}},
    {"SeparateOddHeadSize",
     "bf16 b=1 image=10x5 window=5 shift=1x2 h=2 d=40 layout=separate bias=bf16:1x1x25x25 dbias",
     {2, 1}},
    {"OnePixel", "bf16 b=2 image=3x2 window=1 h=2 d=16", {1, 1}},
    {"WholeTiles", "fp16 b=2 image=16x8 window=8 h=2 d=64 bias=fp32:1x2x64x64 dbias", {4, 1}},
    {"WideHeads", "bf16 b=1 image=4x12 window=4x6 h=2 d=128", {2, 1}},
    {"UnevenWarps", "bf16 b=1 image=8x10 window=8x10 h=2 d=32 bias=bf16:1x2x80x80", {3, 1}},
};

constexpr char kShort[] = "window_attention_backward/short_sm80.cuh";

// Several windows of several biases for each CTA; a part of the rows of the last tile.
constexpr char kSummed[] =
    "bf16 b=40 image=35x4 window=5x4 shift=2x1 h=2 d=24 bias=bf16:7x2x20x20 dtable=9";
constexpr Mistake kMistakes[] = {
    // Softmax: the bias's scale, its window, keys past the end, its parts.
    {kShort, "scale, bias.get", "1.f, bias.get"},
    {kShort, "if (now == entry) return;", "if (entry >= 0) return;"},
    {kShort, "8 * j + 8 > T::kWindowKeys &&", "false &&"},
    {kShort, "- reference) * unit", "- reference)"},
    {kShort, "top = quad_max(top);", ""},
    {kShort, "ds[j][i] - delta", "ds[j][i]"},
    {kShort, "s[j][i] *= inverse;", ""},
    {kShort, "quad_sum(product) * inverse", "product * inverse"},
    // Products: scales, the wrong operand.
    {kShort, "(sums, call.scale, p.dq", "(sums, 1.f, p.dq"},
    {kShort, "(sums, p.forward.call.scale, p.dk", "(sums, 1.f, p.dk"},
    {kShort, "gradients(), rows.queries", "weights(), rows.queries"},
    {kShort, "weights(), rows.gradients", "weights(), rows.queries"},
    {kShort, "(sums, ds_rounded, rows.keys", "(sums, p_rounded, rows.keys"},
    // The walk: windows and images left out, sums of another order.
    {kShort, "window += first / images * step;", ""},
    {kShort, "image = first % images;", "image = 0;"},
    {kShort, "window += step;", ""},
    {kShort, "to[row * T::kWindowKeys + key]", "to[key * T::kWindowKeys + row]"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr char kManyWindows[] = "bf16 b=60 image=10x8 window=5x4 h=1 d=8 bias=bf16:1x1x20x20 dbias";
constexpr MissingWait kUnordered[] = {
    {"RowsNotWaitedFor", {kShort, "copy_wait<0>();", ""}, "a race"},
    {"RowsOfOtherThreads", {kShort, "__syncthreads();  // all rows", "// all rows"}, "a race"},
    {"ScoresOfOtherWarps", {kShort, "__syncthreads();  // P and dS", "// P and dS"}, "a race"},
    {"RowsStillRead", {kShort, "__syncthreads();  // all has", "// all has"}, "a race"},
    {"DqStillRead", {kShort, "__syncwarp();  // dQ has", "// dQ has"}, "a race"},
    {"StagedNotWaitedFor", {kShort, "__syncwarp();  // all lanes", "// all lanes"}, "a race"},
};

class WindowAttentionBackwardShortGpuTest : public JudgedKernelsTest {};

class WindowAttentionBackwardShortCasesGpuTest : public WindowAttentionBackwardShortGpuTest,
                                                 public testing::WithParamInterface<ShortCase> {};

TEST_P(WindowAttentionBackwardShortCasesGpuTest, WindowsMatchTheReference) {
  const ProblemPtr problem = parse_problem(text_of(GetParam().problem));
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().blocks);
  ASSERT_EQ(problem->op().family_of(config).name(), "sm80_short");
  EXPECT_EQ(problem->op().space(*problem, device_).explain(config).value_or(""), "");
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, WindowAttentionBackwardShortCasesGpuTest,
                         testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(WindowAttentionBackwardShortGpuTest, EachMistakeIsSeen) {
  const ProblemPtr problem = parse_problem(on_device(text_of(kSummed), "b=40", "b=2400"));
  const Config config = config_of({1, 2});
  expect_seen(problem, config, kMistakes);
}

class WindowAttentionBackwardShortUnorderedGpuTest
    : public WindowAttentionBackwardShortGpuTest,
      public testing::WithParamInterface<MissingWait> {};

TEST_P(WindowAttentionBackwardShortUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  expect_fault(parse_problem(text_of(kManyWindows)), config_of({2, 1}), GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, WindowAttentionBackwardShortUnorderedGpuTest,
                         testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::window_attention_backward_short_gpu_test
