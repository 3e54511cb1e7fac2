// tests/core/device_info_test.cpp -- The architecture table and occupancy, against cuda_occupancy.h
// where the toolkit is installed.
// SPDX-License-Identifier: Apache-2.0
#include "core/device_info.h"

#include <gtest/gtest.h>

#include <set>

#if __has_include("cuda_occupancy.h")
#include "cuda_occupancy.h"
#define VITUNE_HAS_CUDA_OCCUPANCY 1
#endif

namespace vitune {
namespace {

DeviceInfo h200() {
  DeviceInfo device = *architecture_limits("sm_90");
  device.sm_count = 132;
  device.l2_bytes = 62914560;
  device.memory_bus_bits = 6144;
  device.memory_clock_khz = 3201000;
  device.clock_khz = 1980000;
  return device;
}

TEST(DeviceInfoTest, TheKeyIsTheCanonicalTextOfTheHardFacts) {
  EXPECT_EQ(h200().key(),
            "cc9.0 sm132 smem232448/233472 regs65536 threads2048 l2=62914560 bus6144 mem3201000 "
            "clk1980000");
}

TEST(DeviceInfoTest, SoftFactsAreNotPartOfTheKey) {
  DeviceInfo other = h200();
  other.name = "another label";
  other.uuid = "GPU-1";
  other.memory_bytes = 1;
  other.driver_version = 12000;
  EXPECT_EQ(other.key(), h200().key());
}

TEST(DeviceInfoTest, EveryHardFactChangesTheKey) {
  DeviceInfo changed[11];
  for (DeviceInfo& device : changed) device = h200();
  changed[0].cc_major = 8;
  changed[1].cc_minor = 1;
  changed[2].sm_count = 131;
  changed[3].shared_per_block += 1;
  changed[4].shared_per_sm += 1;
  changed[5].registers_per_sm += 1;
  changed[6].threads_per_sm += 1;
  changed[7].l2_bytes += 1;
  changed[8].memory_bus_bits += 1;
  changed[9].memory_clock_khz += 1;
  changed[10].clock_khz += 1;
  std::set<std::string> keys{h200().key()};
  for (const DeviceInfo& device : changed) keys.insert(device.key());
  EXPECT_EQ(keys.size(), 12u);
}

TEST(DeviceInfoTest, LimitsAreThoseOfTheProgrammingGuide) {
  struct Row {
    const char* arch;
    std::int64_t per_block, per_sm;
    int threads;
  };
  const Row kRows[] = {
      {"sm_80", 166912, 167936, 2048},  {"sm_86", 101376, 102400, 1536},
      {"sm_89", 101376, 102400, 1536},  {"sm_90", 232448, 233472, 2048},
      {"sm_100", 232448, 233472, 2048}, {"sm_103", 232448, 233472, 2048},
      {"sm_110", 232448, 233472, 1536}, {"sm_120", 101376, 102400, 1536},
      {"sm_121", 101376, 102400, 1536},
  };
  ASSERT_EQ(supported_architectures().size(), std::size(kRows));
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const Row& row = kRows[i];
    EXPECT_EQ(supported_architectures()[i], row.arch);
    const auto limits = architecture_limits(row.arch);
    ASSERT_TRUE(limits) << row.arch;
    EXPECT_EQ(limits->arch(), row.arch);
    EXPECT_EQ(limits->shared_per_block, row.per_block) << row.arch;
    EXPECT_EQ(limits->shared_per_sm, row.per_sm) << row.arch;
    EXPECT_EQ(limits->threads_per_sm, row.threads) << row.arch;
    EXPECT_EQ(limits->registers_per_sm, 65536) << row.arch;
    EXPECT_EQ(limits->sm_count, 0) << row.arch;
  }
}

TEST(DeviceInfoTest, AnUnknownArchitectureHasNoLimits) {
  for (const char* name : {"", "sm_", "sm_75", "sm_90a", "SM_90", "sm_900", "90"}) {
    EXPECT_FALSE(architecture_limits(name)) << name;
  }
}

TEST(ResidentCtasTest, CountsWhatAnH200Holds) {
  struct Case {
    int threads, registers;
    std::int64_t shared;
    int expected;
  };
  const Case kCases[] = {
      {128, 128, 0, 4},          // 4 warps x 4096 registers
      {128, 128, 100 << 10, 2},  // shared memory
      {224, 144, 0, 1},          // 12 warps fit, 7 are needed each time
      {256, 144, 0, 1},          //
      {128, 16, 0, 16},          // threads
      {32, 16, 0, 32},           // CTA slots
      {128, 129, 0, 3},          // 129 registers are allocated as 136
      {32, 255, 232448, 1},      // the largest CTA
      {32, 255, 232449, 0},      // one byte more
      {1024, 64, 0, 1},          //
      {1024, 65, 0, 0},          // 32 warps x 2304 registers
      {1025, 16, 0, 0},          // no such CTA
      {32, 256, 0, 0},           // no such register count
      {0, 16, 0, 0},             //
      {-32, 16, 0, 0},           //
      {32, -1, 0, 0},            //
      {32, 16, -1, 0},           //
      {32, 16, std::int64_t{1} << 62, 0},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(resident_ctas(h200(), c.threads, c.registers, c.shared), c.expected)
        << c.threads << " threads, " << c.registers << " registers, " << c.shared << " bytes";
  }
}

#ifdef VITUNE_HAS_CUDA_OCCUPANCY
int occupancy_of_the_toolkit(const DeviceInfo& device, int threads, int registers,
                             std::int64_t shared) {
  cudaOccDeviceProp properties;
  properties.computeMajor = device.cc_major;
  properties.computeMinor = device.cc_minor;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiprocessor = device.threads_per_sm;
  properties.regsPerBlock = 65536;
  properties.regsPerMultiprocessor = static_cast<int>(device.registers_per_sm);
  properties.warpSize = 32;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerMultiprocessor = static_cast<std::size_t>(device.shared_per_sm);
  properties.numSms = 1;
  properties.sharedMemPerBlockOptin = static_cast<std::size_t>(device.shared_per_block);
  properties.reservedSharedMemPerBlock = 1024;
  cudaOccFuncAttributes attributes;
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = registers;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = static_cast<std::size_t>(device.shared_per_block);
  attributes.numBlockBarriers = 1;
  cudaOccDeviceState state;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result{};
  const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
      &result, &properties, &attributes, &state, threads, static_cast<std::size_t>(shared));
  EXPECT_EQ(error, CUDA_OCC_SUCCESS);
  return result.activeBlocksPerMultiprocessor;
}
#endif

TEST(ResidentCtasTest, AgreesWithTheToolkitOnEveryArchitecture) {
#ifdef VITUNE_HAS_CUDA_OCCUPANCY
  int compared = 0;
  for (const std::string& arch : supported_architectures()) {
    const DeviceInfo device = *architecture_limits(arch);
    for (int threads = 16; threads <= 1040; threads += 16) {
      for (int registers = 0; registers <= 255; registers += 5) {
        for (std::int64_t shared : {0, 1, 127, 1024, 5000, 20480, 33333, 49152, 65536, 99328,
                                    101376, 101377, 116224, 166912, 166913, 232448, 232449}) {
          const int ours = resident_ctas(device, threads, registers, shared);
          const int theirs = occupancy_of_the_toolkit(device, threads, registers, shared);
          ASSERT_EQ(ours, theirs) << arch << ' ' << threads << " threads, " << registers
                                  << " registers, " << shared << " bytes";
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 500'000);
#else
  GTEST_SKIP() << "cuda_occupancy.h is not installed";
#endif
}

}  // namespace
}  // namespace vitune
