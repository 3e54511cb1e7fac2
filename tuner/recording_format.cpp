// tuner/recording_format.cpp -- Names that the writer and the reader of recordings share.
#include "tuner/recording_format.h"

namespace vitune::recording_format {
namespace {

// `set` narrows for the facts that are ints; the reader has checked the range.
template <typename Field>
DeviceFact fact(const char* name, Field DeviceInfo::*field) {
  return {name, [field](const DeviceInfo& device) -> std::int64_t { return device.*field; },
          [field](DeviceInfo& device, std::int64_t value) {
            device.*field = static_cast<Field>(value);
          }};
}

}  // namespace

const std::vector<DeviceFact>& device_facts() {
  static const std::vector<DeviceFact> facts = {
      fact("cc_major", &DeviceInfo::cc_major),
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

const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = {
      "registers",    "spill_bytes",  "shared_bytes", "compile_ms",     "max_error",
      "rms_error",    "max_bound",    "rms_bound",    "low_confidence", "cold_ns",
      "cold_low_ns",  "cold_high_ns", "cold_samples", "warm_ns",        "warm_low_ns",
      "warm_high_ns", "warm_samples"};
  return names;
}

}  // namespace vitune::recording_format
