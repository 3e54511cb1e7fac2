// core/device_info.cpp -- Device keys, the table of architectures, and how many CTAs an SM holds.
// SPDX-License-Identifier: Apache-2.0
#include "core/device_info.h"

#include <algorithm>
#include <limits>

#include "core/checked.h"

namespace vitune {
namespace {

constexpr int kWarpSize = 32;
constexpr int kMaxThreadsPerCta = 1024;
constexpr int kMaxRegistersPerThread = 255;
constexpr std::int64_t kRegisterUnit = 256;  // registers, per warp
constexpr std::int64_t kSharedUnit = 128;    // bytes, per CTA
constexpr std::int64_t kReservedShared = 1024;
constexpr std::int64_t kSubPartitions = 4;
constexpr std::int64_t kUnlimited = std::numeric_limits<int>::max();

struct Architecture {
  const char* name;
  int major;
  int minor;
  int shared_kib_per_sm;  // a CTA gets all but the reserved KiB of it
  int threads_per_sm;
};

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr Architecture kArchitectures[] = {
    {"sm_80", 8, 0, 164, 2048},   {"sm_86", 8, 6, 100, 1536},   {"sm_89", 8, 9, 100, 1536},
    {"sm_90", 9, 0, 228, 2048},   {"sm_100", 10, 0, 228, 2048}, {"sm_103", 10, 3, 228, 2048},
    {"sm_110", 11, 0, 228, 1536}, {"sm_120", 12, 0, 100, 1536}, {"sm_121", 12, 1, 100, 1536},
};

// CTA slots of one SM; the fewest of any listed part for an architecture that is not known yet.
std::int64_t cta_slots(const DeviceInfo& device) {
  switch (device.cc_major) {
    case 8:
      return device.cc_minor == 0 ? 32 : device.cc_minor == 9 ? 24 : 16;
    case 9:
    case 10:
      return 32;
    case 11:
    case 12:
      return 24;
    default:
      return 16;
  }
}

// Each sub-partition has a quarter of the registers and holds whole warps only, so that 7 warps of
// 144 registers fit once, not twice.
std::int64_t ctas_by_registers(const DeviceInfo& device, std::int64_t warps, int per_thread) {
  if (per_thread < 0 || per_thread > kMaxRegistersPerThread) return 0;
  if (per_thread == 0) return kUnlimited;
  const std::int64_t per_warp = round_up(std::int64_t{per_thread} * kWarpSize, kRegisterUnit);
  const std::int64_t warps_held =
      device.registers_per_sm / kSubPartitions / per_warp * kSubPartitions;
  return warps_held / warps;
}

std::int64_t ctas_by_shared(const DeviceInfo& device, std::int64_t bytes) {
  if (bytes < 0 || bytes > device.shared_per_block) return 0;
  const std::int64_t reserved = device.cc_major >= 8 ? kReservedShared : 0;
  const std::int64_t allocated = round_up(bytes + reserved, kSharedUnit);
  return allocated == 0 ? kUnlimited : device.shared_per_sm / allocated;
}

}  // namespace

std::string DeviceInfo::arch() const {
  return "sm_" + std::to_string(cc_major) + std::to_string(cc_minor);
}

std::string DeviceInfo::key() const {
  using std::to_string;
  return "cc" + to_string(cc_major) + "." + to_string(cc_minor) + " sm" + to_string(sm_count) +
         " smem" + to_string(shared_per_block) + "/" + to_string(shared_per_sm) + " regs" +
         to_string(registers_per_sm) + " threads" + to_string(threads_per_sm) +
         " l2=" + to_string(l2_bytes) + " bus" + to_string(memory_bus_bits) + " mem" +
         to_string(memory_clock_khz) + " clk" + to_string(clock_khz);
}

std::optional<DeviceInfo> architecture_limits(std::string_view arch) {
  for (const Architecture& known : kArchitectures) {
    if (arch != known.name) continue;
    DeviceInfo limits;
    limits.cc_major = known.major;
    limits.cc_minor = known.minor;
    limits.shared_per_sm = std::int64_t{known.shared_kib_per_sm} * 1024;
    limits.shared_per_block = limits.shared_per_sm - kReservedShared;
    limits.registers_per_sm = 65536;
    limits.threads_per_sm = known.threads_per_sm;
    limits.name = known.name;
    return limits;
  }
  return std::nullopt;
}

DeviceInfo h200_facts() {
  DeviceInfo device = architecture_limits("sm_90").value();
  device.sm_count = 132;
  device.l2_bytes = 62914560;
  device.memory_bus_bits = 6016;
  device.memory_clock_khz = 3201000;
  device.clock_khz = 1980000;
  device.name = "NVIDIA H200";
  return device;
}

const std::vector<std::string>& supported_architectures() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Architecture& known : kArchitectures) all.emplace_back(known.name);
    return all;
  }();
  return names;
}

int resident_ctas(const DeviceInfo& device, int threads, int registers_per_thread,
                  std::int64_t shared_bytes) {
  if (threads <= 0 || threads > kMaxThreadsPerCta) return 0;
  const std::int64_t warps = ceil_div(threads, kWarpSize);
  const std::int64_t by_threads = device.threads_per_sm / kWarpSize / warps;
  const std::int64_t fit =
      std::min({by_threads, cta_slots(device), ctas_by_shared(device, shared_bytes),
                ctas_by_registers(device, warps, registers_per_thread)});
  return static_cast<int>(std::max<std::int64_t>(fit, 0));
}

}  // namespace vitune
