// core/source_devices.cpp -- Distances between devices, and the order of sources.
// SPDX-License-Identifier: Apache-2.0
#include "core/source_devices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/format.h"
#include "core/printable.h"

namespace vitune {
namespace {

double log_ratio(std::int64_t a, std::int64_t b) {
  if (a <= 0 || b <= 0) return std::numeric_limits<double>::infinity();
  return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

bool same_capability(const DeviceInfo& a, const DeviceInfo& b) {
  return a.cc_major == b.cc_major && a.cc_minor == b.cc_minor;
}

// Kernels of one major version mostly compile for another minor one.
auto likeness(const DeviceInfo& a, const DeviceInfo& device) {
  return std::tuple(!same_capability(a, device), a.cc_major != device.cc_major,
                    device_distance(a, device), a.key());
}

std::vector<DeviceInfo> by_likeness(std::vector<DeviceInfo> devices, const DeviceInfo& device) {
  std::ranges::sort(devices, [&](const DeviceInfo& a, const DeviceInfo& b) {
    return likeness(a, device) < likeness(b, device);
  });
  return devices;
}

}  // namespace

double device_distance(const DeviceInfo& a, const DeviceInfo& b) {
  return log_ratio(a.sm_count, b.sm_count) + log_ratio(a.shared_per_block, b.shared_per_block) +
         log_ratio(a.shared_per_sm, b.shared_per_sm) + log_ratio(a.l2_bytes, b.l2_bytes);
}

bool may_serve_from(const DeviceInfo& source, const DeviceInfo& device) {
  if (!same_capability(source, device) || source.key() == device.key()) return false;
  const auto is_within_twice = [](std::int64_t a, std::int64_t b) { return a <= 2 * b; };
  return source.sm_count > 0 && device.sm_count > 0 &&
         is_within_twice(source.sm_count, device.sm_count) &&
         is_within_twice(device.sm_count, source.sm_count);
}

std::vector<DeviceInfo> serving_sources(const std::vector<DeviceInfo>& devices,
                                        const DeviceInfo& device) {
  std::vector<DeviceInfo> sources = by_likeness(devices, device);
  std::erase_if(sources, [&](const DeviceInfo& each) { return !may_serve_from(each, device); });
  return sources;
}

std::vector<DeviceInfo> search_sources(const std::vector<DeviceInfo>& devices,
                                       const DeviceInfo& device) {
  std::vector<DeviceInfo> sources = by_likeness(devices, device);
  std::erase_if(sources, [&](const DeviceInfo& each) { return each.key() == device.key(); });
  return sources;
}

std::string shown_device(const DeviceInfo& device) {
  return formatted("{} ({}, {} SMs)", device.name.empty() ? "GPU" : shown_name(device.name),
                   device.arch(), device.sm_count);
}

}  // namespace vitune
