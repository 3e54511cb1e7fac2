// tests/cli/devices_test.cpp -- vitune devices: what it lists, what it measures, what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/output/ceiling_results.h"
#include "core/device_info.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

Ceilings measured() {
  Ceilings ceilings;
  ceilings.figures = {{"hbm_copy_tb_s", 4.123, 4.1, 4.2, 0},
                      {"mma_tflops", 612.4, 600, 620, 1755},
                      {"exp2_gops", 4181.76, 4100, 4200, 1980}};
  ceilings.clock_mhz = 1975.5;
  ceilings.compiler = "nvrtc 13.0 0123456789ab";
  return ceilings;
}

DeviceInfo h200() {
  DeviceInfo device = architecture_limits("sm_90").value();
  device.name = "NVIDIA H200";
  device.sm_count = 132;
  device.driver_version = 13010;
  return device;
}

TEST(CeilingResults, TheDocumentHasEveryFigureThatWasMeasuredAndNoOther) {
  const auto document = ceiling_json(measured(), h200());

  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["command"], "devices");
  EXPECT_EQ(document["device"]["name"], "NVIDIA H200");
  EXPECT_EQ(document["device"]["sm_count"], 132);
  EXPECT_EQ(document["measured"].size(), 3u);
  EXPECT_EQ(document["measured"]["hbm_copy_tb_s"]["median"], 4.123);
  EXPECT_EQ(document["measured"]["hbm_copy_tb_s"]["low"], 4.1);
  EXPECT_EQ(document["measured"]["hbm_copy_tb_s"]["high"], 4.2);
  EXPECT_FALSE(document["measured"].contains("wgmma_tflops"));
  EXPECT_EQ(document["clock_mhz"], 1975.5);
  EXPECT_EQ(document["clocks_mhz"]["mma_tflops"], 1755);
  EXPECT_FALSE(document["clocks_mhz"].contains("hbm_copy_tb_s"));
  EXPECT_EQ(document["driver"], "13.1");
  EXPECT_EQ(document["contended"], false);
}

TEST(CeilingResults, TheTableHasRatesPerClockAndSmWhereAClockIsKnown) {
  const std::string csv = ceiling_table(measured(), h200()).csv();

  EXPECT_THAT(csv, HasSubstr("\"HBM copy, read + write\",4.12,4.10,4.20,TB/s,-,-\n"));
  EXPECT_THAT(csv, HasSubstr("mma.sync bf16,612.4,600.0,620.0,TFLOP/s,1755,2644 FLOP\n"));
  EXPECT_THAT(csv, HasSubstr("ex2.approx fp32,4182,4100,4200,Gop/s,1980,16.0 ex2\n"));
}

TEST(CeilingResults, EveryNameHasWords) {
  Ceilings all;
  for (const std::string& name : ceiling_names()) all.figures.push_back({name, 1, 1, 1, 1});
  EXPECT_NO_THROW(ceiling_table(all, h200()));
}

class DevicesTest : public CommandTest {};

TEST_F(DevicesTest, MeasuringWithoutAGpuIsOneLineAndStatus3) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  for (const auto& arguments : {std::vector<std::string>{"devices", "--measure"},
                                std::vector<std::string>{"devices", "--measure", "--json"}}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 3);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("no usable GPU: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(DevicesTest, OptionsThatMakeNoSenseAreUsage) {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"devices", "--samples", "3"}, "--samples belongs to --measure"},
      {{"devices", "--device", "0"}, "--device belongs to --measure"},
      {{"devices", "--measure", "--samples", "0"}, "--samples"},
      {{"devices", "--measure", "--samples", "1001"}, "--samples"},
      {{"devices", "--measure", "--device", "all"}, "--device"},
      {{"devices", "--mesure"}, "did you mean --measure"},
      {{"compile", "--probes", "bf16 b=1 h=1 n=8 d=8"}, "leave one of the two"},
  };
  for (const auto& each : cases) {
    const CommandResult result = run(each.arguments);
    EXPECT_EQ(result.status, 2) << each.said;
    EXPECT_THAT(result.err, HasSubstr(each.said));
  }
}

TEST_F(DevicesTest, TheProbesAndTheLadderCompileWithoutAGpu) {
  if (!has_compiler()) GTEST_SKIP() << "there is no NVRTC";
  const CommandResult result = run({"compile", "--probes", "--arch", "sm_90", "--json", "-q"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<std::string> names;
  const auto document = result.json();
  for (const auto& each : document["results"]) {
    EXPECT_EQ(each["arch"], "sm_90");
    EXPECT_TRUE(each["ok"].get<bool>()) << each["log"];
    names.push_back(each["kernel"]);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"probes", "probe of wgmma", "naive bf16 d=64", "tensor_core fp16 d=72"}));
}

TEST_F(DevicesTest, TheCeilingsWorkerNeedsItsParent) {
  const CommandResult result = run({"--worker=ceilings", "0"});
  EXPECT_NE(result.status, 0);
}

}  // namespace
}  // namespace vitune::testing
