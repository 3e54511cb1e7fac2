// cli/arguments/device_probe.cpp -- One question, one answer, over the worker's socket.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/device_probe.h"

#include <nlohmann/json.hpp>

#include "core/child_process.h"
#include "core/cuda_driver.h"
#include "core/device_facts.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr int kDescriptor = 3;
constexpr std::uint32_t kAnswer = 1;
constexpr std::chrono::seconds kDeadline{60};  // a busy machine starts CUDA slowly

json device_json(const DeviceInfo& device) {
  json facts = {{"name", device.name}, {"uuid", device.uuid}};
  for (const DeviceFact& fact : device_facts()) facts[fact.name] = fact.get(device);
  return facts;
}

DeviceInfo device_from_json(const json& value) {
  DeviceInfo device;
  value.at("name").get_to(device.name);
  value.at("uuid").get_to(device.uuid);
  for (const DeviceFact& fact : device_facts()) {
    fact.set(device, value.at(fact.name).get<std::int64_t>());
  }
  return device;
}

// The driver's reason without the words around it: callers say themselves that there is no GPU and
// what to do.
std::string short_reason(std::string_view text) {
  constexpr std::string_view kPrefix = "no usable GPU: ";
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  return std::string(text.substr(0, text.find("; ")));
}

DeviceProbe probe_in_this_process() {
  DeviceProbe probe;
  try {
    const auto driver = CudaDriver::open();
    probe.driver_version = driver->version();
    for (int ordinal = 0; ordinal < driver->device_count(); ++ordinal) {
      probe.devices.push_back(driver->device_info(ordinal));
    }
    if (probe.devices.empty()) probe.reason = "the driver sees no GPU";
  } catch (const std::exception& error) {
    probe.devices.clear();
    probe.reason = short_reason(error.what());
  }
  return probe;
}

DeviceProbe no_devices(std::string reason) {
  DeviceProbe probe;
  probe.reason = std::move(reason);
  return probe;
}

}  // namespace

std::string encode_probe(const DeviceProbe& probe) {
  json document = {{"driver_version", probe.driver_version},
                   {"reason", probe.reason},
                   {"devices", json::array()}};
  for (const DeviceInfo& device : probe.devices) document["devices"].push_back(device_json(device));
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

DeviceProbe decode_probe(std::string_view text) {
  try {
    const json document = json::parse(text);
    DeviceProbe probe;
    document.at("driver_version").get_to(probe.driver_version);
    document.at("reason").get_to(probe.reason);
    for (const json& device : document.at("devices")) {
      probe.devices.push_back(device_from_json(device));
    }
    return probe;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kFailure,
                formatted("the device probe's answer cannot be read: {}", error.what()));
  }
}

DeviceProbe probe_devices(const std::filesystem::path& program) {
  try {
    ChildOptions options;
    options.command = {program.string(), "--worker=devices"};
    ChildProcess child(options);
    Frame frame;
    switch (child.receive(frame, kDeadline)) {
      case ChildProcess::Receive::kFrame:
        return decode_probe(frame.payload);
      case ChildProcess::Receive::kTimeout:
        return no_devices(
            formatted("the CUDA driver gave no answer within {} s", kDeadline.count()));
      case ChildProcess::Receive::kClosed:
      case ChildProcess::Receive::kGarbage:
        break;
    }
    const auto end = child.kill();
    return no_devices(formatted("the process that asked the CUDA driver ended: {}",
                                end ? end->text() : "it could not be reaped"));
  } catch (const Error& error) {
    return no_devices(error.what());
  }
}

std::string brief_reason(const DeviceProbe& probe) {
  return probe.reason.substr(0, probe.reason.find(" ("));
}

int run_device_worker() {
  write_frame(kDescriptor, Frame{kAnswer, 0, encode_probe(probe_in_this_process())});
  return 0;
}

}  // namespace vitune
