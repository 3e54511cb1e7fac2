// tests/like_devices.h -- Parts of the architecture of an H200 that are not one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tests/devices.h"

namespace vitune::testing_support {

// An NVIDIA H100 SXM with HBM3: the same SMs, less L2.
inline DeviceInfo h100_device(std::string name = "NVIDIA H100") {
  DeviceInfo device = h200_device(std::move(name));
  device.l2_bytes = 52428800;
  device.memory_bus_bits = 5120;
  device.memory_clock_khz = 2619000;
  device.memory_bytes = std::int64_t{80} << 30;
  return device;
}

// An NVIDIA H20: the same architecture with 78 SMs.
inline DeviceInfo h20_device(std::string name = "NVIDIA H20") {
  DeviceInfo device = h200_device(std::move(name));
  device.sm_count = 78;
  device.memory_bytes = std::int64_t{96} << 30;
  return device;
}

}  // namespace vitune::testing_support
