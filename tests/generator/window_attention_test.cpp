// tests/generator/window_attention_test.cpp -- Window attention: texts, refusals, tensors, spaces
// and plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "generator/window_attention/kernel_spec.h"
#include "generator/window_attention/operator.h"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune::window_attention_test {
namespace {

using testing::HasSubstr;

constexpr const char* kProblems[] = {
    "window_attention bf16 b=32 image=56x56 window=7x7 h=3 d=32 bias=bf16:1x3x49x49",
    "window_attention bf16 b=32 image=56x56 window=7x7 shift=3x3 h=3 d=32 bias=bf16:64x3x49x49",
    "window_attention bf16 b=32 image=7x7 window=7x7 h=24 d=32 bias=bf16:1x24x49x49",
    "window_attention fp16 b=8 image=48x48 window=12x12 shift=6x6 h=4 d=32 bias=fp32:16x1x144x144",
    "window_attention bf16 b=4 image=64x64 window=14x14 h=12 d=64 padding",
    "window_attention bf16 b=1 image=50x53 window=7x7 shift=3x0 h=3 d=32 padding pad_first",
    "window_attention bf16 b=32 image=56x56 window=7x7 h=2 d=32 layout=interleaved grid "
    "bias=bf16:1x2x49x49",
    "window_attention fp16 b=2 image=3x5 window=3x2 h=1 d=8 layout=separate scale=0.5",
    "window_attention bf16 b=1 image=48x48 window=24x24 h=2 d=32",
};

TEST(WindowAttentionProblemTest, TextsAreCanonical) {
  for (const char* const text : kProblems) {
    EXPECT_EQ(WindowAttentionProblem::parse(text).text(), text);
  }
  const auto canonical = [](const char* text) {
    return WindowAttentionProblem::parse(text).text();
  };
  EXPECT_EQ(
      canonical("d=32 h=3 shift=3 window=7 image=56 b=2 bf16 layout=packed padding pad_first"),
      "window_attention bf16 b=2 image=56x56 window=7x7 shift=3x3 h=3 d=32");
  EXPECT_EQ(canonical("bf16 b=2 image=9 window=7 shift=0x0 h=3 d=16 padding pad_first scale=0.25"),
            "window_attention bf16 b=2 image=9x9 window=7x7 h=3 d=16 padding");
  EXPECT_EQ(canonical("bf16 b=2 image=7 window=7 h=3 d=16 grid"),
            "window_attention bf16 b=2 image=7x7 window=7x7 h=3 d=16");
}

TEST(WindowAttentionProblemTest, RefusalsSayWhatToDo) {
  const struct {
    const char* text;
    ErrorCode code;
    const char* sentence;
  } kCases[] = {
      {"b=1 image=8 window=4 h=1 d=8", ErrorCode::kUsage, "the type is missing"},
      {"bf16 fp16 b=1 image=8 window=4 h=1 d=8", ErrorCode::kUsage, "two types"},
      {"fp32 b=1 image=8 window=4 h=1 d=8", ErrorCode::kUnsupported, "use bf16 or fp16"},
      {"bf16 b=1 window=4 h=1 d=8", ErrorCode::kUsage, "image= (rows and columns of an image)"},
      {"bf16 b=1 image=8 h=1 d=8", ErrorCode::kUsage, "window= (rows and columns of a window)"},
      {"bf16 b=1 image=8x8x8 window=4 h=1 d=8", ErrorCode::kUsage, "use ROWSxCOLUMNS"},
      {"bf16 b=1 image=8 window=4x h=1 d=8", ErrorCode::kUsage, "not a whole number"},
      {"bf16 b=1 image=8 window=0 h=1 d=8", ErrorCode::kUsage, "window=0: 1 is the least"},
      {"bf16 b=0 image=8 window=4 h=1 d=8", ErrorCode::kUsage, "b=0: 1 is the least"},
      {"bf16 b=1 image=8 window=4 shift=8 h=1 d=8", ErrorCode::kUnsupported, "7 is the most"},
      {"bf16 b=1 image=8 window=4 shift=-1 h=1 d=8", ErrorCode::kUsage, "shift=-1"},
      {"bf16 b=1 image=8 window=4 h=1 d=12", ErrorCode::kUnsupported, "multiples of 8"},
      {"bf16 b=1 image=8 window=4 h=1 d=136", ErrorCode::kUnsupported, "128 is the most"},
      {"bf16 b=1 image=99 window=33 h=1 d=8", ErrorCode::kUnsupported, "may have 576 pixels"},
      {"bf16 b=1 image=9 window=4 h=1 d=8 grid", ErrorCode::kUsage, "multiples of the window's"},
      {"bf16 b=1 image=8 window=4 shift=1 h=1 d=8 grid", ErrorCode::kUsage, "and no shift"},
      {"bf16 b=1 image=8 window=4 h=1 d=8 layout=nhwc", ErrorCode::kUsage, "packed, interleaved"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16", ErrorCode::kUsage, "TYPE:WINDOWSxHEADSxNxN"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:1x2x16x15", ErrorCode::kUsage, "16 pixels"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:3x2x16x16", ErrorCode::kUsage, "the 4 of"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bf16:1x3x16x16", ErrorCode::kUsage, "or all 2"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 bias=bool:1x2x16x16", ErrorCode::kUsage,
       "cannot be bool"},
      {"bf16 b=1 image=8 window=4 h=2 d=8 scale=0", ErrorCode::kUsage, "scale=0"},
      {"bf16 b=99999999999 image=8 window=4 h=1 d=8", ErrorCode::kUnsupported, "is the most"},
      {"bf16 b=1 image=8 window=4 h=16777217 d=8", ErrorCode::kUnsupported, "2^26 elements"},
      {"bf16 b=1000000000 image=8 window=4 h=9 d=8", ErrorCode::kUnsupported, "2^30 windows"},
  };
  for (const auto& [text, code, sentence] : kCases) {
    try {
      WindowAttentionProblem::parse(text);
      ADD_FAILURE() << text << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << text << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
    }
  }
}

TEST(WindowAttentionProblemTest, TensorsAreViewsOfTheProjection) {
  const auto tensors = [](const char* text) {
    return window_attention_tensors(WindowAttentionProblem::parse(text));
  };
  using Dims = TensorSpec::Dims;
  const auto packed = tensors("bf16 b=2 image=4x6 window=2 h=3 d=8");
  EXPECT_EQ(packed[kWindowV].strides, (Dims{24 * 72, 72, 8, 1}));
  EXPECT_EQ(packed[kWindowV].offset, 48);
  EXPECT_EQ(packed[kWindowOut].strides, (Dims{24 * 24, 24, 8, 1}));
  EXPECT_FALSE(packed[kWindowBias].given || packed[kWindowPadding].given);
  const auto interleaved = tensors("bf16 b=2 image=4x6 window=2 h=3 d=8 layout=interleaved");
  EXPECT_EQ(interleaved[kWindowV].strides, (Dims{24 * 72, 72, 24, 1}));
  EXPECT_EQ(interleaved[kWindowV].offset, 16);
  const auto separate = tensors("bf16 b=2 image=4x5 window=2 h=3 d=8 layout=separate padding");
  EXPECT_EQ(separate[kWindowK].strides, (Dims{20 * 24, 24, 8, 1}));
  EXPECT_EQ(separate[kWindowK].shared, -1);
  EXPECT_EQ(separate[kWindowPadding].bytes(), 2 * 3 * 3 * 8);
}

TEST(WindowAttentionProblemTest, EachElementIsCountedOnce) {
  const auto p =
      WindowAttentionProblem::parse("bf16 b=2 image=4 window=2 h=3 d=8 bias=fp32:4x1x4x4");
  EXPECT_EQ(p.min_bytes(), 4 * (2 * 16 * 3 * 8) * 2 + 4 * 4 * 4 * 4);
  EXPECT_EQ(p.flops(), 4.0 * 8 * 4 * 4 * (2 * 4 * 3));
}

TEST(WindowAttentionSpaceTest, EveryProblemHasADefaultInsideItsSpace) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kProblems) {
    const auto p = WindowAttentionProblem::parse(text);
    const ParameterSpace space = testing_support::space_of(p, device);
    const auto configs = space.enumerate();
    EXPECT_GE(configs.size(), 4u) << text;
    EXPECT_LE(configs.size(), 2000u) << text;
    const auto defaults = testing_support::defaults_of(p, device);
    ASSERT_EQ(defaults.size(), 2u) << text;  // one more, should that be blocked
    EXPECT_NE(defaults[0], defaults[1]) << text;
    for (const Config& each : defaults) EXPECT_EQ(space.explain(each), std::nullopt) << text;
    for (const Config& config : configs) {
      const WindowGeometry t = window_geometry(p, config);
      ASSERT_GE(t.query_rows(), p.keys()) << text << ' ' << config.text();
      ASSERT_GE(t.key_rows(), p.keys()) << text << ' ' << config.text();
      ASSERT_LE(t.shared_bytes(), device.shared_per_block) << text << ' ' << config.text();
    }
  }
}

TEST(WindowAttentionOperatorTest, ConfigsServeOtherImagesOfTheSameWindows) {
  const auto same = [](const char* a, const char* b) {
    return window_attention().kernel_class(*window_attention().parse(a)) ==
           window_attention().kernel_class(*window_attention().parse(b));
  };
  constexpr const char* kPlain = "bf16 b=32 image=56 window=7 h=3 d=32 bias=bf16:1x3x49x49";
  EXPECT_TRUE(
      same(kPlain, "bf16 b=1 image=28x7 window=7 h=6 d=32 layout=separate bias=bf16:1x1x49x49"));
  EXPECT_FALSE(same(kPlain, "bf16 b=32 image=56 window=7 shift=3 h=3 d=32 bias=bf16:1x3x49x49"));
  EXPECT_FALSE(same(kPlain, "bf16 b=32 image=56 window=7 h=3 d=32 bias=bf16:64x3x49x49"));
  EXPECT_FALSE(same(kPlain, "bf16 b=32 image=57 window=7 h=3 d=32 bias=bf16:1x3x49x49"));
  EXPECT_FALSE(same(kPlain, "bf16 b=32 image=56 window=7 h=3 d=32 grid bias=bf16:1x3x49x49"));
  EXPECT_FALSE(same(kPlain, "bf16 b=32 image=56 window=8 h=3 d=32 bias=bf16:1x3x64x64"));
}

WindowAttentionParams params_of(const LaunchPlan& plan) {
  WindowAttentionParams params;
  std::memcpy(&params, plan.kernels.front().params.data(), sizeof params);
  return params;
}

TEST(WindowAttentionOperatorTest, CtasThatKeepABiasMeetItAgain) {
  const DeviceInfo device = testing_support::h200_device();  // 132 SMs
  Config config = Config::parse(
      "kBiasInRegisters=0 kBlockN=56 kBuffers=1 kHeadsPerCta=1 kMinCtas=4 kPersistent=1 "
      "kRowTiles=1 kRowWarps=4");
  const auto grid = [&](const char* text, int resident) {
    const auto p = WindowAttentionProblem::parse(text);
    return testing_support::plan_of(p, config, device, {resident}).kernels.front().shape.grid[0];
  };
  constexpr const char* kFive = "bf16 b=32 image=56 window=7 h=5 d=32 bias=bf16:1x5x49x49";
  EXPECT_EQ(grid(kFive, 4), 528u);
  const auto unasked =
      testing_support::plan_of(WindowAttentionProblem::parse(kFive), config, device, {});
  EXPECT_EQ(unasked.kernels.front().shape.grid[0], 132u) << "how many fit is not known";
  config.set("kBiasInRegisters", 1);
  EXPECT_EQ(grid(kFive, 4), 525u);
  config.set("kHeadsPerCta", 2);  // 5 CTAs have 10 heads: twice each of 5
  EXPECT_EQ(grid(kFive, 4), 525u);
  config.set("kHeadsPerCta", 5);
  EXPECT_EQ(grid(kFive, 4), 528u);
  config.set("kPersistent", 0);
  EXPECT_EQ(grid("bf16 b=1 image=7 window=7 h=6 d=32 bias=bf16:1x6x49x49", 4), 2u);
}

TEST(WindowAttentionOperatorTest, RollsWrapAtTheImageOrAtItsPadding) {
  const DeviceInfo device = testing_support::h200_device();
  const auto params = [&](const char* text) {
    const auto p = WindowAttentionProblem::parse(text);
    const auto space = testing_support::space_of(p, device);
    const Config config = testing_support::defaults_of(p, device).front();
    return params_of(testing_support::plan_of(p, config, device, {1}));
  };
  const auto after = params("bf16 b=2 image=10x15 window=4 shift=2 h=3 d=8");
  EXPECT_EQ(after.roll_rows, 10);
  EXPECT_EQ(after.roll_columns, 15);
  EXPECT_EQ(after.windows, 12);
  EXPECT_EQ(after.call.batch, 24);
  const auto before = params("bf16 b=2 image=10x15 window=4 shift=2 h=3 d=8 pad_first");
  EXPECT_EQ(before.roll_rows, 12);
  EXPECT_EQ(before.roll_columns, 16);
  const auto grid = params("bf16 b=2 image=8x12 window=4 h=3 d=8 grid");
  EXPECT_EQ(grid.row_step, 2);
  EXPECT_EQ(grid.column_step, 3);
}

}  // namespace
}  // namespace vitune::window_attention_test
