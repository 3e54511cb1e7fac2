// core/source_devices.h -- Of which other devices the winners say something about a device.
//
// Transfer tuning: a device without a winner takes configs from the winners of another one, the
// source device. The order of sources is by likeness: the same compute capability first, then the
// least distance of SMs, shared memory and L2. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/device_info.h"

namespace vitune {

// Sum of the absolute logarithms of the ratios of SMs, shared memory per CTA and per SM, and L2: 0
// for equal ones, symmetric. Infinity if a fact of either is 0.
double device_distance(const DeviceInfo& a, const DeviceInfo& b);

// True if configs of `source`'s winners may serve on `device` without having been measured there:
// another part of the same compute capability with at least half and at most twice as many SMs. An
// SM is then the same and only their number and the memory differ, and up to a factor of 2 in work
// per SM the same forms of kernel are good. Across compute capabilities no evidence says so.
bool may_serve_from(const DeviceInfo& source, const DeviceInfo& device);

// Those of `devices` that may_serve_from(), the most alike first.
std::vector<DeviceInfo> serving_sources(const std::vector<DeviceInfo>& devices,
                                        const DeviceInfo& device);
// All of `devices` but `device`, the most alike first: for a search, which measures what it takes.
std::vector<DeviceInfo> search_sources(const std::vector<DeviceInfo>& devices,
                                       const DeviceInfo& device);

// "NVIDIA H200 (sm_90, 132 SMs)", in printable characters.
std::string shown_device(const DeviceInfo& device);

}  // namespace vitune
