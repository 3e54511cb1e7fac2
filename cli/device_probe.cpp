// cli/device_probe.cpp -- One question, one answer, over the worker's socket.
#include "cli/device_probe.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/child_process.h"
#include "core/cuda_driver.h"
#include "core/error.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr int kDescriptor = 3;
constexpr std::uint32_t kAnswer = 1;
constexpr std::chrono::seconds kDeadline{20};

json device_json(const DeviceInfo& device) {
  return {{"cc_major", device.cc_major},
          {"cc_minor", device.cc_minor},
          {"sm_count", device.sm_count},
          {"shared_per_block", device.shared_per_block},
          {"shared_per_sm", device.shared_per_sm},
          {"registers_per_sm", device.registers_per_sm},
          {"threads_per_sm", device.threads_per_sm},
          {"l2_bytes", device.l2_bytes},
          {"memory_bus_bits", device.memory_bus_bits},
          {"memory_clock_khz", device.memory_clock_khz},
          {"clock_khz", device.clock_khz},
          {"name", device.name},
          {"uuid", device.uuid},
          {"memory_bytes", device.memory_bytes},
          {"driver_version", device.driver_version}};
}

DeviceInfo device_from_json(const json& value) {
  DeviceInfo device;
  value.at("cc_major").get_to(device.cc_major);
  value.at("cc_minor").get_to(device.cc_minor);
  value.at("sm_count").get_to(device.sm_count);
  value.at("shared_per_block").get_to(device.shared_per_block);
  value.at("shared_per_sm").get_to(device.shared_per_sm);
  value.at("registers_per_sm").get_to(device.registers_per_sm);
  value.at("threads_per_sm").get_to(device.threads_per_sm);
  value.at("l2_bytes").get_to(device.l2_bytes);
  value.at("memory_bus_bits").get_to(device.memory_bus_bits);
  value.at("memory_clock_khz").get_to(device.memory_clock_khz);
  value.at("clock_khz").get_to(device.clock_khz);
  value.at("name").get_to(device.name);
  value.at("uuid").get_to(device.uuid);
  value.at("memory_bytes").get_to(device.memory_bytes);
  value.at("driver_version").get_to(device.driver_version);
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
                fmt::format("the device probe's answer cannot be read: {}", error.what()));
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
            fmt::format("the CUDA driver gave no answer within {} s", kDeadline.count()));
      case ChildProcess::Receive::kClosed:
      case ChildProcess::Receive::kGarbage:
        break;
    }
    const auto end = child.kill();
    return no_devices(fmt::format("the process that asked the CUDA driver ended: {}",
                                  end ? end->text() : "it could not be reaped"));
  } catch (const Error& error) {
    return no_devices(error.what());
  }
}

int run_device_worker() {
  write_frame(kDescriptor, Frame{kAnswer, 0, encode_probe(probe_in_this_process())});
  return 0;
}

}  // namespace vitune
