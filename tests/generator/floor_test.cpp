// tests/generator/floor_test.cpp -- The least time of each unit, against figures worked out by
// hand.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/floor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "catalogue/problem_set.h"
#include "generator/attention/operator.h"
#include "tests/devices.h"

namespace vitune {
namespace {

using testing_support::h200_device;

DeviceInfo a100() {
  DeviceInfo device;
  device.cc_major = 8;
  device.sm_count = 108;
  device.memory_bus_bits = 5120;
  device.memory_clock_khz = 1215000;
  device.clock_khz = 1410000;
  device.l2_bytes = 41943040;
  return device;
}

double us_of(const Floor& floor, HardwareUnit unit) {
  for (const UnitTime& time : floor.units) {
    if (time.unit == unit) return time.us;
  }
  return -1;
}

TEST(AttentionFloorTest, TheUnitThatLimitsIsTheOneOfTheRooflines) {
  // Times at 790 TFLOP/s, 4.3 TB/s and 16 exponentials per clock of 1.98 GHz on 132 SMs.
  const struct {
    const char* problem;
    HardwareUnit unit;
    double us;
  } cases[] = {
      {"bf16 b=32 h=12 n=197 d=64", HardwareUnit::kHbm, 9.007},
      {"bf16 b=4 h=16 n=4096 d=128", HardwareUnit::kTensor, 695.89},
      {"bf16 b=4 h=16 n=4096 d=64", HardwareUnit::kTensor, 347.95},
      {"bf16 b=4 h=16 n=4096 d=32", HardwareUnit::kExp, 256.77},
      {"bf16 b=4 h=16 n=4096 d=8", HardwareUnit::kExp, 256.77},
      {"bf16 b=2048 h=4 n=49 d=32", HardwareUnit::kHbm, 23.90},
      {"bf16 b=64 h=16 nq=1 nk=729 d=72", HardwareUnit::kHbm, 50.05},
  };
  for (const auto& c : cases) {
    const auto floor = attention_floor(AttentionProblem::parse(c.problem), h200_device());
    ASSERT_TRUE(floor) << c.problem;
    EXPECT_EQ(hardware_unit_name(floor->unit), hardware_unit_name(c.unit)) << c.problem;
    EXPECT_NEAR(floor->us, c.us, 0.002 * c.us) << c.problem;
  }
}

TEST(AttentionFloorTest, EachUnitHasItsOwnTime) {
  const auto floor =
      attention_floor(AttentionProblem::parse("bf16 b=32 h=12 n=197 d=64"), h200_device()).value();

  const double scores = 32.0 * 12 * 197 * 197, clocks = 132 * 1.98e3;  // per microsecond
  EXPECT_NEAR(us_of(floor, HardwareUnit::kTensor), 4 * 64 * scores / 790e6, 1e-3);
  EXPECT_NEAR(us_of(floor, HardwareUnit::kExp), scores / (16 * clocks), 1e-3);
  EXPECT_NEAR(us_of(floor, HardwareUnit::kIssue), 4.5 * scores / (128 * clocks), 1e-3);
  // Four groups of up to 64 rows read 197 keys and values of 128 bytes.
  EXPECT_NEAR(us_of(floor, HardwareUnit::kSharedMemory),
              32 * 12 * 4 * 197 * 2 * 128 / (128 * clocks), 1e-3);
  EXPECT_NEAR(us_of(floor, HardwareUnit::kL2), 38731776 / 9.0e6, 1e-3);
  EXPECT_NEAR(us_of(floor, HardwareUnit::kHbm), 38731776 / 4.3e6, 1e-3);
  for (std::size_t i = 1; i < floor.units.size(); ++i) {
    EXPECT_GE(floor.units[i - 1].us, floor.units[i].us);
  }
}

TEST(AttentionFloorTest, WarmCallsNeedNotReadWhatL2Holds) {
  const auto small = AttentionProblem::parse("bf16 b=32 h=12 n=197 d=64");   // 38.7 MB
  const auto large = AttentionProblem::parse("bf16 b=128 h=12 n=197 d=64");  // 154.9 MB
  const auto warm_small = attention_floor(small, h200_device(), Residency::kWarm).value();
  const auto warm_large = attention_floor(large, h200_device(), Residency::kWarm).value();

  EXPECT_EQ(warm_small.unit, HardwareUnit::kTensor);
  EXPECT_EQ(us_of(warm_small, HardwareUnit::kHbm), 0);
  EXPECT_NEAR(us_of(warm_large, HardwareUnit::kHbm), (154927104 - 62914560) / 4.3e6, 1e-3);
  EXPECT_GT(attention_floor(large, h200_device())->us, warm_large.us);
}

TEST(AttentionFloorTest, CausalHalvesTheWorkOfEveryUnitButMemory) {
  const auto full =
      attention_floor(AttentionProblem::parse("bf16 b=4 h=16 n=4096 d=64"), h200_device()).value();
  const auto causal =
      attention_floor(AttentionProblem::parse("bf16 b=4 h=16 n=4096 d=64 causal"), h200_device())
          .value();
  for (const UnitTime& time : full.units) {
    const bool memory = time.unit == HardwareUnit::kHbm || time.unit == HardwareUnit::kL2;
    EXPECT_NEAR(us_of(causal, time.unit) / time.us, memory ? 1.0 : 0.5, 1e-3)
        << hardware_unit_name(time.unit);
  }
}

TEST(AttentionFloorTest, OtherDevicesAreRatedByTheirFacts) {
  const auto problem = AttentionProblem::parse("bf16 b=32 h=12 n=197 d=64");
  EXPECT_NEAR(attention_floor(problem, a100())->us, 38731776 / 1.5552e6, 1e-3);
  const auto large = AttentionProblem::parse("bf16 b=4 h=16 n=4096 d=128");
  // 312 TFLOP/s: what NVIDIA states for the A100.
  EXPECT_NEAR(attention_floor(large, a100())->us, large.flops() / 312e6, 0.001 * 1760);
  EXPECT_EQ(attention_floor(large, a100())->unit, HardwareUnit::kTensor);
}

TEST(AttentionFloorTest, WhatTheDeviceDoesNotStateIsLeftOut) {
  const auto problem = AttentionProblem::parse("bf16 b=32 h=12 n=197 d=64");
  DeviceInfo device = a100();
  device.clock_khz = 0;
  const auto floor = attention_floor(problem, device);
  ASSERT_TRUE(floor);
  ASSERT_EQ(floor->units.size(), 1U);
  EXPECT_EQ(floor->unit, HardwareUnit::kHbm);
  EXPECT_FALSE(attention_floor(problem, DeviceInfo{}));
}

Demand demand_of(const std::string& words, const DeviceInfo& device) {
  const ProblemPtr problem = parse_problem(words);
  return problem->op().demand(*problem, device);
}

TEST(DemandTest, AGroupNormTakesExponentialsForItsActivationAlone) {
  const std::string words = "group_norm bf16 n=1 c=512 l=16 g=8 weight bias";
  EXPECT_EQ(demand_of(words, h200_device()).exponentials, 0);
  EXPECT_EQ(demand_of(words + " mish", h200_device()).exponentials, 512 * 16);
}

// 196 keys: four groups of 64 rows, or one of 256 where a pair of SMs multiplies together.
TEST(DemandTest, WindowsReadTheirKeysForAsManyRowsAsTheDeviceMultipliesAtOnce) {
  const struct {
    int cc_major;
    double reads;
  } cases[] = {{8, 4}, {9, 4}, {10, 1}, {11, 1}, {12, 4}};
  for (const auto& c : cases) {
    DeviceInfo device = h200_device();
    device.cc_major = c.cc_major;
    EXPECT_EQ(demand_of("window_attention bf16 b=1 image=28x28 window=14x14 h=3 d=32", device)
                  .shared_bytes,
              2 * (4 * 3) * c.reads * 196 * 32 * 2)
        << c.cc_major;
  }
}

TEST(AttentionFloorTest, NoPeerOfTheBenchmarkIsFasterThanItsWarmFloor) {
  // The peers' times were measured on such a device: a floor above one of them would be none.
  for (const NamedProblem& p : preset("bench", std::filesystem::path(VITUNE_SOURCE_DIR) / "data")) {
    const double cold = attention_floor(attention_of(*p.problem), h200_device())->us;
    const double warm =
        attention_floor(attention_of(*p.problem), h200_device(), Residency::kWarm)->us;
    for (const PeerTime& peer : p.peers) {
      EXPECT_GT(peer.cold_us, cold) << p.name << ' ' << peer.peer;
      EXPECT_GT(peer.warm_us, warm) << p.name << ' ' << peer.peer;
    }
  }
}

}  // namespace
}  // namespace vitune
