// core/device_info.h -- DeviceInfo: the silicon facts that decide which kernels fit and win.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vitune {

struct DeviceInfo {
  // Hard facts: together they are the device's key in the database.
  int cc_major = 0;  // compute capability
  int cc_minor = 0;
  int sm_count = 0;
  std::int64_t shared_per_block = 0;  // bytes, opt-in maximum of dynamic + static
  std::int64_t shared_per_sm = 0;     // bytes
  std::int64_t registers_per_sm = 0;  // 32-bit registers
  int threads_per_sm = 0;
  std::int64_t l2_bytes = 0;
  int memory_bus_bits = 0;
  int memory_clock_khz = 0;
  int clock_khz = 0;

  // Soft facts: they label a result and decide how far it is trusted.
  std::string name;
  std::string uuid;  // for locks only
  std::int64_t memory_bytes = 0;
  int driver_version = 0;  // as cuDriverGetVersion gives it: 13000 for 13.0

  // "sm_90"
  std::string arch() const;
  // Canonical text of the hard facts, for example
  // "cc9.0 sm132 smem232448/233472 regs65536 threads2048 l2=62914560 bus6144 mem3201000
  // clk1980000".
  std::string key() const;

  bool operator==(const DeviceInfo&) const = default;
};

// Limits of an architecture as the CUDA C++ Programming Guide's table of compute capabilities gives
// them ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"):
// enough to prune and compile without that GPU. sm_count is 0. Nothing for an unknown name.
std::optional<DeviceInfo> architecture_limits(std::string_view arch);

// NVIDIA H200 SXM, as its driver states it: the device of the shipped winners and the recording,
// for what is asked without a GPU.
DeviceInfo h200_facts();

// The architectures the shipped templates are compiled for, oldest first.
const std::vector<std::string>& supported_architectures();

// CTAs of a kernel that fit on one SM at once: the least of the limits by registers (allocated per
// warp in units of 256, each warp from one of four sub-partitions), shared memory (plus the 1 KiB
// the system reserves per CTA, in units of 128 bytes), threads and CTA slots. 0: it does not fit at
// all. `shared_bytes` is static + dynamic. Agrees with the toolkit's cuda_occupancy.h for shared
// memory preferred over L1; tests/core compares the two.
int resident_ctas(const DeviceInfo& device, int threads, int registers_per_thread,
                  std::int64_t shared_bytes);

}  // namespace vitune
