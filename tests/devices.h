// tests/devices.h -- Devices as core/device_info.h describes them, for tests without a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/device_info.h"

namespace vitune::testing_support {

// An NVIDIA H200 SXM as its driver states it, under this name.
inline DeviceInfo h200_device(std::string name = "NVIDIA H200") {
  DeviceInfo device;
  device.cc_major = 9;
  device.cc_minor = 0;
  device.sm_count = 132;
  device.shared_per_block = 232448;
  device.shared_per_sm = 233472;
  device.registers_per_sm = 65536;
  device.threads_per_sm = 2048;
  device.l2_bytes = 62914560;
  device.memory_bus_bits = 6016;
  device.memory_clock_khz = 3201000;
  device.clock_khz = 1980000;
  device.name = std::move(name);
  device.memory_bytes = std::int64_t{141} << 30;
  device.driver_version = 13000;
  return device;
}

}  // namespace vitune::testing_support
