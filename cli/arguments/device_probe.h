// cli/arguments/device_probe.h -- Which GPUs this machine has, found out by a child process.
//
// A driver that hangs or crashes takes the child with it, not the command; and the command itself
// stays free of CUDA, as the tuner asks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.h"

namespace vitune {

struct DeviceProbe {
  std::vector<DeviceInfo> devices;  // by ordinal
  int driver_version = 0;           // as cuDriverGetVersion gives it; 0 without a driver
  std::string reason;               // why there is no device; empty if there is one
};

// Asks a child for at most 20 s; never throws for a missing or broken driver.
DeviceProbe probe_devices(const std::filesystem::path& program);

// Why there is no device, without what the system said of it: `vitune doctor` has that.
std::string brief_reason(const DeviceProbe& probe);

// The child's side (--worker=devices): answers on file descriptor 3. Returns its exit status.
int run_device_worker();

// The child's answer as JSON, both ways, for tests. decode throws Error(kFailure) for anything
// else.
std::string encode_probe(const DeviceProbe& probe);
DeviceProbe decode_probe(std::string_view text);

}  // namespace vitune
