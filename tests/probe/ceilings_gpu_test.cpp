// tests/probe/ceilings_gpu_test.cpp -- Ceilings measured by the real worker: on a GPU, and with
// little work per launch on the emulated device.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>

#include "core/cuda_driver.h"
#include "core/error.h"
#include "probe/ceilings.h"

namespace vitune {
namespace {

using testing::HasSubstr;

bool emulated(const DeviceInfo& device) { return device.name == "emulated device"; }

class CeilingsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = CudaDriver::open()->device_info(0);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    options_.command = {VITUNE_COMMAND, "--worker=ceilings"};
    // Time is virtual there, and work is done by one CPU.
    if (emulated(device_)) options_.effort = {.launch_us = 3, .samples = 2};
  }

  DeviceInfo device_;
  CeilingOptions options_;
  std::vector<std::string> phases_;
  std::atomic<bool> stop_{false};
};

TEST_F(CeilingsGpuTest, EveryUnitOfTheDeviceIsMeasuredAndChecked) {
  const Ceilings ceilings = measure_ceilings(
      options_, [&](const std::string& phase) { phases_.push_back(phase); }, stop_);

  for (const std::string& name : ceiling_names()) {
    const CeilingFigure* figure = ceilings.find(name);
    if (name == "wgmma_tflops" && device_.arch() != "sm_90") {
      EXPECT_EQ(figure, nullptr);
      continue;
    }
    ASSERT_NE(figure, nullptr) << name;
    EXPECT_GT(figure->low, 0) << name;
    EXPECT_LE(figure->low, figure->median) << name;
    EXPECT_LE(figure->median, figure->high) << name;
    EXPECT_EQ(figure->clock_mhz > 0, name.find("tb_s") == std::string::npos) << name;
    EXPECT_THAT(phases_, testing::Contains(name));
    std::printf("%-14s %10.3f [%.3f, %.3f] at %.0f MHz\n", name.c_str(), figure->median,
                figure->low, figure->high, figure->clock_mhz);
  }
  EXPECT_GT(ceilings.clock_mhz, 0);
  EXPECT_THAT(ceilings.compiler, HasSubstr("nvrtc"));
}

// The units of compute capability 8.0 and later, within what no GPU exceeds and none falls below.
TEST_F(CeilingsGpuTest, RatesPerClockAndSmAreThoseOfTheArchitecture) {
  if (emulated(device_)) GTEST_SKIP() << "time is virtual on the emulated device";
  const Ceilings ceilings = measure_ceilings(
      options_, [](const std::string&) {}, stop_);

  const auto per_clock = [&](const char* name, double unit) {
    const CeilingFigure& figure = *ceilings.find(name);
    return figure.median * unit / (figure.clock_mhz * 1e6 * device_.sm_count);
  };
  const double fma = per_clock("fma_tflops", 1e12) / 2, exp2 = per_clock("exp2_gops", 1e9);
  EXPECT_GT(fma, device_.cc_major == 8 && device_.cc_minor == 0 ? 58 : 115);
  EXPECT_LT(fma, 129);
  EXPECT_GT(exp2, 14.5);
  EXPECT_LT(exp2, 33);
  EXPECT_GT(per_clock("mma_tflops", 1e12), 450);
  EXPECT_LT(per_clock("mma_tflops", 1e12), 8500);
  EXPECT_GT(ceilings.find("l2_read_tb_s")->median, ceilings.find("hbm_read_tb_s")->median);
}

TEST_F(CeilingsGpuTest, AnOrdinalWithoutAGpuIsNoDevice) {
  options_.ordinal = 1000;
  try {
    measure_ceilings(
        options_, [](const std::string&) {}, stop_);
    FAIL() << "measured a GPU that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoDevice) << error.what();
  }
}

}  // namespace
}  // namespace vitune
