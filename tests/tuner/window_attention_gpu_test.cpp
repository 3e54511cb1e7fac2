// tests/tuner/window_attention_gpu_test.cpp -- The window kernels against the fp64 judge: rolled,
// padded in both orders, grids, every layout and type; and mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "generator/window_attention/kernel_spec.h"
#include "generator/window_attention/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::window_attention_gpu_test {
namespace {

struct WindowCase {
  const char* name;
  const char* problem;
};

void PrintTo(const WindowCase& each, std::ostream* out) { *out << each.problem; }

constexpr WindowCase kCases[] = {
    {"Swin", "window_attention bf16 b=2 image=14x14 window=7 h=3 d=32 bias=bf16:1x3x49x49"},
    {"SwinShifted",
     "window_attention bf16 b=2 image=14x21 window=7 shift=3 h=2 d=32 bias=bf16:6x2x49x49"},
    {"SwinShiftedOneWindow",
     "window_attention bf16 b=3 image=7x7 window=7 shift=3 h=2 d=32 bias=bf16:1x2x49x49"},
    {"Padded", "window_attention bf16 b=2 image=9x13 window=4 h=2 d=16 padding"},
    {"PaddedWithZeros", "window_attention fp16 b=1 image=5x8 window=3x4 h=2 d=16"},
    {"RolledThenPadded",
     "window_attention fp16 b=2 image=10x11 window=4 shift=2 h=2 d=16 padding bias=fp16:9x2x16x16"},
    {"PaddedThenRolled",
     "window_attention fp16 b=2 image=10x11 window=4 shift=2x1 h=2 d=16 padding pad_first "
     "bias=fp32:9x1x16x16"},
    {"Grid", "window_attention bf16 b=2 image=8x12 window=4 h=2 d=32 grid layout=interleaved"},
    {"Block", "window_attention bf16 b=1 image=8x4 window=4x2 h=5 d=8 layout=interleaved"},
    {"Separate", "window_attention bf16 b=2 image=6x6 window=3 shift=1 h=3 d=24 layout=separate"},
    {"OddHeadSize", "window_attention bf16 b=1 image=10x5 window=5 h=2 d=40 bias=bf16:1x1x25x25"},
    {"OnePixel", "window_attention bf16 b=2 image=3x2 window=1 h=2 d=16"},
    {"SeveralSteps",
     "window_attention bf16 b=1 image=12x24 window=12 shift=6 h=1 d=32 scale=0.3 "
     "bias=bf16:2x1x144x144"},
};

constexpr Mistake kMistakes[] = {
    {"window_attention/window_place.cuh", "rolled(at_y + p.shift_rows, p.roll_rows)", "at_y"},
    {"window_attention/window_place.cuh", "at_x + p.shift_columns", "at_x + p.shift_rows"},
    {"window_attention/window_place.cuh", "at >= extent ? at - extent : at",
     "at >= extent ? extent - 1 : at"},
    {"window_attention/window_place.cuh", "at_y >= p.rows || at_x >= p.columns", "at_y >= p.rows"},
    {"window_attention/window_place.cuh", "row % T::kWindowColumns", "row % T::kWindowRows"},
    {"window_attention/windows_sm80.cuh", "place.image * p.call.q_view.batch", "0"},
    {"window_attention/windows_sm80.cuh", "padding + which * padding_step", "padding"},
    {"window_attention/windows_sm80.cuh", "source.v, 2, pixel", "source.v, 1, pixel"},
    {"window_attention/windows_sm80.cuh", "if (T::kPadded && pixel < 0) continue;", ""},
    {"window_attention/windows_sm80.cuh", "place.window, place.head}", "0, place.head}"},
    {"window_attention/windows_sm80.cuh", "const bool there = row < T::kKeys;",
     "const bool there = row < T::kKeys - 1;"},
};

class WindowAttentionGpuTest : public JudgedKernelsTest {};

class WindowAttentionConfigsGpuTest : public WindowAttentionGpuTest,
                                      public testing::WithParamInterface<WindowCase> {};

// Some configs from all of the space; kMinCtas moves no element.
TEST_P(WindowAttentionConfigsGpuTest, ConfigsFromAllOverTheSpaceMatchTheReference) {
  constexpr std::size_t kSome = 5;
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  std::vector<Config> configs = window_attention().space(*problem, device_).enumerate();
  std::erase_if(configs, [](const Config& config) { return config.at("kMinCtas") != 1; });
  ASSERT_GE(configs.size(), kSome);
  for (std::size_t i = 0; i < kSome; ++i) {
    const Config& config = configs[i * (configs.size() - 1) / (kSome - 1)];
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, WindowAttentionConfigsGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(WindowAttentionGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(
      "window_attention bf16 b=2 image=8x9 window=3x5 shift=1x2 h=2 d=16 padding "
      "bias=bf16:6x2x15x15");
  const Config config =
      window_attention()
          .defaults(*problem, device_, window_attention().space(*problem, device_))
          .front();
  expect_seen(problem, config, kMistakes);
}

// More than fit on the emulated device at once.
constexpr char kManyWindows[] =
    "window_attention bf16 b=3 image=20x50 window=5x4 h=3 d=8 bias=bf16:1x3x20x20";
constexpr char kTwoWarps[] =
    "kBiasInRegisters=1 kBlockN=24 kBuffers=1 kHeadsPerCta=1 kMinCtas=1 kPersistent=1 kRowTiles=1 "
    "kRowWarps=2";

// Warps of a window wait for each other's copies, and for each other before these are written over.
constexpr Mistake kUnordered[] = {
    {"window_attention/windows_sm80.cuh",
     "group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);  // all rows", "// all rows"},
    {"window_attention/windows_sm80.cuh",
     "group_barrier<T::kHeadsPerCta, T::kGroupThreads>(group);  // and have", "// and have"},
};

class WindowAttentionRacesGpuTest : public WindowAttentionGpuTest,
                                    public testing::WithParamInterface<Mistake> {};

// A fault ends a process's use of the device: each launches in a process of its own.
TEST_P(WindowAttentionRacesGpuTest, AMissingBarrierIsARaceOnTheEmulatedDevice) {
  if (device_.name != "emulated device") GTEST_SKIP() << "only the emulated device looks for races";
  const ProblemPtr problem = parse_problem(kManyWindows);
  const Config config = Config::parse(kTwoWarps);
  Verifier verifier = verifier_of(problem);
  ASSERT_EQ(window_attention().space(*problem, device_).explain(config), std::nullopt);
  const auto launch = [&] {
    std::fputs(verdict(verifier, *problem, config, &GetParam()).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(launch(), testing::ExitedWithCode(0), "a race");
}

INSTANTIATE_TEST_SUITE_P(Barriers, WindowAttentionRacesGpuTest, testing::ValuesIn(kUnordered));

// CTAs that go on to other windows, with the bias that they have, a copy ahead or none.
TEST_F(WindowAttentionGpuTest, CtasThatWalkMatchTheReference) {
  const ProblemPtr problem = parse_problem(kManyWindows);
  Verifier verifier = verifier_of(problem);
  for (const int buffers : {1, 2}) {
    for (const int kept : {0, 1}) {
      Config config = Config::parse(kTwoWarps);
      config.set("kBuffers", buffers);
      config.set("kBiasInRegisters", kept);
      ASSERT_EQ(window_attention().space(*problem, device_).explain(config), std::nullopt);
      EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
    }
  }
}

}  // namespace
}  // namespace vitune::window_attention_gpu_test
