// core/device_facts.h -- The integers of DeviceInfo by name, for everything that writes or reads
// one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include "core/device_info.h"

namespace vitune {

struct DeviceFact {
  std::string name;   // "sm_count"
  std::int64_t most;  // largest value its field holds
  std::function<std::int64_t(const DeviceInfo&)> get;
  std::function<void(DeviceInfo&, std::int64_t)> set;  // 0 <= value <= most
};

// All of them, the hard facts first. The name and the UUID are texts and not among them.
std::span<const DeviceFact> device_facts();

}  // namespace vitune
