// tests/generator/window_attention_backward_test.cpp -- Gradients of window attention: texts,
// refusals, tensors, spaces and plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"
#include "generator/window_attention_backward/kernel_spec.h"
#include "generator/window_attention_backward/operator.h"
#include "tests/devices.h"
#include "tests/generator/asked.h"
#include "tests/generator/random_window_attention_backward.h"

namespace vitune::window_attention_backward_test {
namespace {

using testing::HasSubstr;
using Problem = WindowAttentionBackwardProblem;

constexpr const char* kProblems[] = {
    "window_attention_backward bf16 b=32 image=56x56 window=7x7 h=3 d=32 bias=bf16:1x3x49x49 dbias",
    "window_attention_backward bf16 b=32 image=56x56 window=7x7 shift=3x3 h=3 d=32 "
    "bias=bf16:64x3x49x49 dbias=1x3x49x49",
    "window_attention_backward bf16 b=32 image=56x56 window=7x7 shift=3x3 h=3 d=32 "
    "bias=bf16:64x3x49x49 dtable=169",
    "window_attention_backward bf16 b=32 image=56x56 window=7x7 shift=3x3 h=3 d=32 "
    "bias=bf16:64x3x49x49 dbias",
    "window_attention_backward fp16 b=8 image=48x48 window=12x12 shift=6x6 h=4 d=32 "
    "bias=fp32:16x1x144x144 dbias=1x1x144x144",
    "window_attention_backward bf16 b=4 image=64x64 window=14x14 h=12 d=64 padding",
    "window_attention_backward bf16 b=1 image=50x53 window=7x7 shift=3x0 h=3 d=32 padding "
    "pad_first",
    "window_attention_backward bf16 b=32 image=56x56 window=7x7 h=2 d=32 layout=interleaved grid "
    "bias=bf16:1x2x49x49",
    "window_attention_backward fp16 b=2 image=3x5 window=3x2 h=1 d=8 layout=separate scale=0.5",
    "window_attention_backward bf16 b=1 image=48x48 window=24x24 h=2 d=32",
    "window_attention_backward bf16 b=2 image=28x28 window=14x14 h=2 d=80 bias=fp32:1x2x196x196 "
    "dtable=729",
};

TEST(WindowAttentionBackwardProblemTest, TextsAreCanonical) {
  for (const char* const text : kProblems) EXPECT_EQ(Problem::parse(text).text(), text);
  const auto canonical = [](const char* text) { return Problem::parse(text).text(); };
  EXPECT_EQ(canonical("dbias=1x1x16x16 d=32 h=3 window=4 image=8 b=2 bf16 bias=fp32:1x1x16x16"),
            "window_attention_backward bf16 b=2 image=8x8 window=4x4 h=3 d=32 "
            "bias=fp32:1x1x16x16 dbias");
}

TEST(WindowAttentionBackwardProblemTest, RandomTextsParseBack) {
  testing_support::RandomWindowGradients gradients(7);
  for (int i = 0; i < 300; ++i) {
    const Problem p = gradients.next();
    EXPECT_EQ(Problem::parse(p.text()), p) << p.text();
  }
}

TEST(WindowAttentionBackwardProblemTest, RefusalsSayWhatToDo) {
  const struct {
    const char* text;
    ErrorCode code;
    const char* sentence;
  } kCases[] = {
      {"bf16 b=1 window=4 h=1 d=8", ErrorCode::kUsage, "try 'window_attention_backward bf16"},
      {"bf16 b=1 image=8 window=4 h=1 d=12", ErrorCode::kUnsupported, "multiples of 8"},
      {"bf16 b=1 image=8 window=4 h=1 d=8 dbias", ErrorCode::kUsage, "dbias needs bias="},
      {"bf16 b=1 image=8 window=4 h=1 d=8 dtable=9", ErrorCode::kUsage, "dtable needs bias="},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:1x2x16x16 dbias dtable=9", ErrorCode::kUsage,
       "use one of them"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:1x2x16x16 dbias=4x2x16x16", ErrorCode::kUsage,
       "1, or the 1 of the bias"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:4x2x16x16 dbias=4x1x16x16", ErrorCode::kUsage,
       "use WINDOWSx2x16x16"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:4x2x16x16 dbias=1x2x16", ErrorCode::kUsage,
       "use WINDOWSx2x16x16"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:4x2x16x16 dbias=fp32", ErrorCode::kUsage,
       "not a whole number"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:4x2x16x16 dtable=0", ErrorCode::kUsage,
       "1 is the least"},
      {"bf16 b=1 image=1x1 window=1 h=1032 d=8 bias=bf16:1x1032x1x1 dtable=16777216",
       ErrorCode::kUnsupported, "16777216 rows of 1032 heads"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:4x2x16x16 dtable=99999999",
       ErrorCode::kUnsupported, "use 1 to 16777216 rows"},
      {"bf16 b=1 image=2400x2400 window=24 h=1 d=8 bias=bf16:10000x1x576x576 dbias",
       ErrorCode::kUnsupported, "sum over windows"},
  };
  for (const auto& [text, code, sentence] : kCases) {
    try {
      Problem::parse(text);
      ADD_FAILURE() << text << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << text << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
    }
  }
}

TEST(WindowAttentionBackwardProblemTest, GradientsLieAsTheirTensors) {
  const auto tensors = window_attention_backward_tensors(
      Problem::parse("bf16 b=2 image=4x5 window=2 h=3 d=8 padding bias=bf16:6x3x4x4 dtable=9"));
  using Dims = TensorSpec::Dims;
  EXPECT_EQ(tensors[kWindowBackwardDv].strides, (Dims{20 * 72, 72, 8, 1}));
  EXPECT_EQ(tensors[kWindowBackwardDv].offset, 48);
  EXPECT_NE(tensors[kWindowBackwardDv].shared, tensors[kWindowBackwardV].shared);
  EXPECT_EQ(tensors[kWindowBackwardDq].shared, tensors[kWindowBackwardDv].shared);
  EXPECT_EQ(tensors[kWindowBackwardDout].strides, (Dims{20 * 24, 24, 8, 1}));
  EXPECT_FALSE(tensors[kWindowBackwardDbias].given);
  EXPECT_EQ(tensors[kWindowBackwardIndex].bytes(), 4 * 16);
  EXPECT_EQ(tensors[kWindowBackwardDtable].bytes(), 4 * 9 * 3);
  EXPECT_EQ(tensors[kWindowBackwardDpadding].bytes(), 4 * 3 * 3 * 8);
  const auto plain = window_attention_backward_tensors(
      Problem::parse("bf16 b=2 image=4 window=2 h=3 d=8 bias=fp32:4x3x4x4 dbias=1x3x4x4"));
  EXPECT_EQ(plain[kWindowBackwardDbias].extents, (Dims{1, 3, 4, 4}));
  EXPECT_FALSE(plain[kWindowBackwardDpadding].given || plain[kWindowBackwardDtable].given);
}

TEST(WindowAttentionBackwardProblemTest, EachElementIsCountedOnce) {
  const auto p =
      Problem::parse("bf16 b=2 image=4 window=2 h=3 d=8 bias=fp32:4x1x4x4 dbias=1x1x4x4");
  EXPECT_EQ(p.min_bytes(), 7 * (2 * 16 * 3 * 8) * 2 + 4 * 4 * 4 * 4 + 4 * 4 * 4);
  EXPECT_EQ(p.flops(), 10.0 * 8 * 4 * 4 * (2 * 4 * 3));
}

TEST(WindowAttentionBackwardSpaceTest, EveryProblemHasADefaultInsideItsSpace) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kProblems) {
    const auto p = Problem::parse(text);
    const ParameterSpace space = testing_support::space_of(p, device);
    const auto configs = space.enumerate();
    EXPECT_GE(configs.size(), 4u) << text;
    EXPECT_LE(configs.size(), 2000u) << text;
    const auto defaults = testing_support::defaults_of(p, device);
    ASSERT_EQ(defaults.size(), 2u) << text;  // one more, should that be blocked
    EXPECT_NE(defaults[0], defaults[1]) << text;
    for (const Config& each : defaults) EXPECT_EQ(space.explain(each), std::nullopt) << text;
    for (const Config& config : configs) {
      for (const KernelNeeds& needs : window_attention_backward().kernels(*ProblemPtr(p), config)) {
        ASSERT_LE(needs.shared_bytes, device.shared_per_block) << text << ' ' << config.text();
      }
      if (window_attention_backward().family_of(config).name() != "sm80") continue;
      const WindowBackwardGeometry t = window_backward_geometry(p, config);
      ASSERT_GE(t.rows(), p.forward.keys()) << text << ' ' << config.text();
      ASSERT_LE(t.shared_bytes(), device.shared_per_block) << text << ' ' << config.text();
    }
  }
}

// Small windows that all lie in the image have a family of their own.
TEST(WindowAttentionBackwardSpaceTest, WindowsOfFewPixelsHaveAFamilyOfTheirOwn) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kProblems) {
    const auto p = Problem::parse(text);
    const ProblemPtr problem = p;
    const bool is_served = p.forward.keys() <= 80 && !p.forward.is_padded();
    const auto refusal = window_attention_backward_short().refusal(*problem, device);
    EXPECT_EQ(refusal.has_value(), !is_served) << text;
    const auto name = [&](const Config& config) {
      return std::string(problem->op().family_of(config).name());
    };
    const auto defaults = testing_support::defaults_of(p, device);
    EXPECT_EQ(name(defaults.at(0)), is_served ? "sm80_short" : "sm80") << text;
    EXPECT_EQ(name(defaults.at(1)), "sm80") << text;
    const auto configs = testing_support::space_of(p, device).enumerate();
    const auto own = std::ranges::count(configs, "sm80_short", name);
    EXPECT_EQ(own > 0, is_served) << text;
    EXPECT_LE(own, 60) << text;
  }
  const auto sentence = [&](const char* text) {
    return window_attention_backward_short().refusal(*ProblemPtr(Problem::parse(text)), device);
  };
  EXPECT_THAT(*sentence("bf16 b=1 image=48 window=24 h=2 d=32"), HasSubstr("80 pixels, not 576"));
  EXPECT_THAT(*sentence("bf16 b=1 image=9 window=7 h=2 d=32"), HasSubstr("beyond the image"));
}

WindowAttentionBackwardParams params_of(const KernelLaunch& launch) {
  WindowAttentionBackwardParams params;
  std::memcpy(&params, launch.params.data(), sizeof params);
  return params;
}

LaunchPlan plan_of(const char* text, const DeviceInfo& device) {
  const auto p = Problem::parse(text);
  const Config config = Config::parse("kWarps=1 kBlockN=16 kBuffers=1 kKeepsScores=0 kMinCtas=1");
  return testing_support::plan_of(p, config, device, {4});
}

TEST(WindowAttentionBackwardPlanTest, CtasShareTheWindowsOfAnEntry) {
  const DeviceInfo device = testing_support::h200_device();  // 132 SMs
  const auto params = [&](const char* text) {
    const LaunchPlan plan = plan_of(text, device);
    const auto handed = params_of(plan.kernels.front());
    EXPECT_EQ(plan.kernels.front().shape.grid[0],
              static_cast<std::uint32_t>(handed.parts * handed.entries));
    return handed;
  };
  // An entry for each head, or for each head and window; no more CTAs than windows.
  const auto heads = params("bf16 b=32 image=56 window=7 h=5 d=8 bias=bf16:1x5x49x49 dbias");
  EXPECT_EQ(heads.entries, 5);
  EXPECT_EQ(heads.parts, 105);
  EXPECT_EQ(heads.instances, 32 * 64);
  const auto windows = params("bf16 b=3 image=28 window=7 h=2 d=8 bias=bf16:16x2x49x49 dbias");
  EXPECT_EQ(windows.entries, 32);
  EXPECT_EQ(windows.parts, 3);
  EXPECT_EQ(windows.instances, 3);
  EXPECT_EQ(params("bf16 b=1 image=7 window=7 h=600 d=8").parts, 1);
}

TEST(WindowAttentionBackwardPlanTest, OnlyWhatIsAskedForIsSummedUp) {
  const DeviceInfo device = testing_support::h200_device();
  const auto plan = [&](const char* text) { return plan_of(text, device); };
  EXPECT_EQ(plan("bf16 b=2 image=9 window=4 h=2 d=8").kernels.size(), 1u);
  EXPECT_EQ(plan("bf16 b=2 image=9 window=4 h=2 d=8").scratch_bytes, 0);
  EXPECT_EQ(plan("bf16 b=2 image=9 window=4 h=2 d=8 padding").kernels.size(), 2u);
  constexpr const char* kTable = "bf16 b=2 image=8 window=4 h=20 d=8 bias=bf16:1x20x16x16 dtable=9";
  const LaunchPlan table = plan(kTable);
  ASSERT_EQ(table.kernels.size(), 3u);
  EXPECT_EQ(table.kernels[2].shape.grid[0], 27u);  // 9 rows by 3 groups of heads
  // 8 CTAs of each of 20 heads, and the sums of all heads.
  EXPECT_EQ(table.scratch_bytes, 4 * 8 * 20 * 256 + 4 * 20 * 256);
}

}  // namespace
}  // namespace vitune::window_attention_backward_test
