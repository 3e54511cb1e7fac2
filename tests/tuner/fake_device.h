// tests/tuner/fake_device.h -- A GPU that is not there, and how fast kernels are on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "core/config.h"
#include "core/device_info.h"
#include "tests/devices.h"

namespace vitune::test {

// The silicon of an H200.
inline DeviceInfo fake_device() {
  DeviceInfo device = testing_support::h200_device("Fake H200");
  device.uuid = "GPU-00000000-0000-0000-0000-000000000000";
  return device;
}

// Microseconds that depend on each value of the config; the same in every process.
inline double fake_us(const Config& config) {
  double log_us = 2.5;
  for (const auto& [name, value] : config) {
    std::uint64_t hash = static_cast<std::uint64_t>(value) + 1;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9u;
    log_us += 0.3 * static_cast<double>((hash ^ (hash >> 32)) % 1000) / 1000;
  }
  return std::exp(log_us);
}

}  // namespace vitune::test
