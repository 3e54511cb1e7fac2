// core/device_facts.cpp -- The integers of DeviceInfo by name.
// SPDX-License-Identifier: Apache-2.0
#include "core/device_facts.h"

#include <array>

namespace vitune {
namespace {

template <typename Field>
DeviceFact fact(const char* name, Field DeviceInfo::*field) {
  return {name, std::int64_t{std::numeric_limits<Field>::max()},
          [field](const DeviceInfo& device) -> std::int64_t { return device.*field; },
          [field](DeviceInfo& device, std::int64_t value) {
            device.*field = static_cast<Field>(value);
          }};
}

}  // namespace

std::span<const DeviceFact> device_facts() {
  static const std::array facts = {fact("cc_major", &DeviceInfo::cc_major),
                                   fact("cc_minor", &DeviceInfo::cc_minor),
                                   fact("sm_count", &DeviceInfo::sm_count),
                                   fact("shared_per_block", &DeviceInfo::shared_per_block),
                                   fact("shared_per_sm", &DeviceInfo::shared_per_sm),
                                   fact("registers_per_sm", &DeviceInfo::registers_per_sm),
                                   fact("threads_per_sm", &DeviceInfo::threads_per_sm),
                                   fact("l2_bytes", &DeviceInfo::l2_bytes),
                                   fact("memory_bus_bits", &DeviceInfo::memory_bus_bits),
                                   fact("memory_clock_khz", &DeviceInfo::memory_clock_khz),
                                   fact("clock_khz", &DeviceInfo::clock_khz),
                                   fact("memory_bytes", &DeviceInfo::memory_bytes),
                                   fact("driver_version", &DeviceInfo::driver_version)};
  return facts;
}

}  // namespace vitune
