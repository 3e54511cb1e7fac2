// generator/floor.cpp -- Rates of the units, and the time that a demand takes of each.
// SPDX-License-Identifier: Apache-2.0
#include "generator/floor.h"

#include <algorithm>
#include <functional>

namespace vitune {
namespace {

// Per second; 0 where the device's facts do not say.
struct Rates {
  double tensor = 0;  // floating-point operations
  double exp = 0;     // exponentials
  double issue = 0;   // instructions of single threads
  double shared = 0;  // bytes
  double l2 = 0;      // bytes
  double hbm = 0;     // bytes
};

// The silicon of the H200 by its facts, not its name: OEMs rename it.
bool is_h200_class(const DeviceInfo& device) {
  return device.cc_major == 9 && device.cc_minor == 0 && device.sm_count == 132 &&
         device.memory_bus_bits == 6016;  // 47 of 48 parts in use
}

// Dense 16-bit products with fp32 sums, operations per clock and SM: the peak figures of NVIDIA's
// architecture papers over SMs and boost clock (A100 312, H100 989, B200 2250 TFLOP/s). GeForce
// parts of 8.6, 8.9 and 12.x do half of what their workstation siblings do, whose rate this is.
double tensor_per_clock(const DeviceInfo& device) {
  switch (device.cc_major) {
    case 8:
      return device.cc_minor == 0 ? 2048 : 1024;
    case 9:
      return 4096;
    case 10:
    case 11:
      return 8192;
    case 12:
      return 1024;
    default:
      return 0;
  }
}

// Results per clock and SM: the CUDA C++ Programming Guide's table of arithmetic throughput; on
// 9.0 measured as 16.0. Blackwell Ultra (10.3) has twice as many units, says NVIDIA.
double exp_per_clock(const DeviceInfo& device) {
  return device.cc_major == 10 && device.cc_minor == 3 ? 32 : 16;
}

Rates rates_of(const DeviceInfo& device) {
  constexpr double kIssuedPerClock = 128, kSharedBytesPerClock = 128, kL2BytesPerClock = 64;
  const double clocks = 1e3 * device.clock_khz * device.sm_count;
  Rates rates{.tensor = clocks * tensor_per_clock(device),
              .exp = clocks * exp_per_clock(device),
              .issue = clocks * kIssuedPerClock,
              .shared = clocks * kSharedBytesPerClock,
              .l2 = clocks * kL2BytesPerClock,
              // Two transfers per clock: the driver states the command clock of double-data-rate
              // memory.
              .hbm = 2.0 * device.memory_clock_khz * 1e3 * device.memory_bus_bits / 8};
  if (is_h200_class(device)) {
    // Measured: cuBLAS on random data, the fastest bulk copies out of L2, a device copy.
    rates.tensor = 790e12;
    rates.l2 = 9.0e12;
    rates.hbm = 4.3e12;
  }
  return rates;
}

}  // namespace

std::string hardware_unit_name(HardwareUnit unit) {
  switch (unit) {
    case HardwareUnit::kTensor:
      return "tensor";
    case HardwareUnit::kExp:
      return "exp";
    case HardwareUnit::kIssue:
      return "issue";
    case HardwareUnit::kSharedMemory:
      return "shared memory";
    case HardwareUnit::kL2:
      return "L2";
    case HardwareUnit::kHbm:
      return "HBM";
  }
  return "?";
}

std::optional<Floor> floor_of(const Demand& demand, const DeviceInfo& device, Residency residency) {
  const Rates rates = rates_of(device);
  const double kept = residency == Residency::kWarm ? static_cast<double>(device.l2_bytes) : 0;
  Floor floor{};
  const auto add = [&](HardwareUnit unit, double work, double rate) {
    if (rate > 0) floor.units.push_back({unit, 1e6 * work / rate});
  };
  // Units that do nothing for the operator are not named.
  const auto add_asked = [&](HardwareUnit unit, double work, double rate) {
    if (work > 0) add(unit, work, rate);
  };
  add_asked(HardwareUnit::kTensor, demand.tensor_flops, rates.tensor);
  add_asked(HardwareUnit::kExp, demand.exponentials, rates.exp);
  add_asked(HardwareUnit::kIssue, demand.instructions, rates.issue);
  add_asked(HardwareUnit::kSharedMemory, demand.shared_bytes, rates.shared);
  add(HardwareUnit::kL2, demand.bytes, rates.l2);
  add(HardwareUnit::kHbm, std::max(0.0, demand.bytes - kept), rates.hbm);
  if (floor.units.empty()) return std::nullopt;
  std::ranges::stable_sort(floor.units, std::ranges::greater{}, &UnitTime::us);
  floor.us = floor.units.front().us;
  floor.unit = floor.units.front().unit;
  return floor;
}

}  // namespace vitune
