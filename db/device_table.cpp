// db/device_table.cpp -- Devices and problems as rows.
// SPDX-License-Identifier: Apache-2.0
#include "db/device_table.h"

#include <algorithm>

#include "db/row_codec.h"

namespace vitune {
namespace {

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxOperator = 64;
constexpr std::size_t kMaxProblem = 4096;

}  // namespace

bool is_plain_text(std::string_view text, std::size_t limit) {
  return !text.empty() && text.size() <= limit && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && std::string_view("_ =.,:@*%/+-[]()").find(c) != std::string_view::npos);
  });
}

Blob device_id(const DeviceInfo& device) { return short_id(sha256(device.key())); }

Blob problem_id(const ProblemKey& problem) {
  return short_id(sha256(problem.operator_name + "\n" + problem.text));
}

Row device_row(const DeviceInfo& device) {
  return {device_id(device),
          device.key(),
          std::int64_t{device.cc_major},
          std::int64_t{device.cc_minor},
          std::int64_t{device.sm_count},
          device.shared_per_block,
          device.shared_per_sm,
          device.registers_per_sm,
          std::int64_t{device.threads_per_sm},
          device.l2_bytes,
          std::int64_t{device.memory_bus_bits},
          std::int64_t{device.memory_clock_khz},
          std::int64_t{device.clock_khz},
          clipped(device.name, kMaxName),
          device.memory_bytes,
          std::int64_t{device.driver_version}};
}

std::optional<DeviceInfo> device_from_row(const Row& row) {
  const auto read = [](RowReader& reader) {
    const Blob id = reader.blob();
    if (id != short_id(sha256(reader.text()))) {
      throw Error(ErrorCode::kDatabase, "a device whose identity is not that of its key");
    }
    DeviceInfo device;
    device.cc_major = reader.small_integer();
    device.cc_minor = reader.small_integer();
    device.sm_count = reader.small_integer();
    device.shared_per_block = reader.integer();
    device.shared_per_sm = reader.integer();
    device.registers_per_sm = reader.integer();
    device.threads_per_sm = reader.small_integer();
    device.l2_bytes = reader.integer();
    device.memory_bus_bits = reader.small_integer();
    device.memory_clock_khz = reader.small_integer();
    device.clock_khz = reader.small_integer();
    device.name = reader.text();
    device.memory_bytes = reader.integer();
    device.driver_version = reader.small_integer();
    return device;
  };
  return decode_row(row, read);
}

Row problem_row(const ProblemKey& problem) {
  if (!is_plain_text(problem.operator_name, kMaxOperator) ||
      !is_plain_text(problem.text, kMaxProblem)) {
    throw Error(ErrorCode::kFailure,
                "storing problem \"" + clipped(problem.text, 80) +
                    "\": a problem's text has 1 to 4096 letters, digits and characters of "
                    "\" _=.,:@*%/+-[]()\"; nothing was stored");
  }
  return {problem_id(problem), problem.operator_name, problem.text};
}

std::optional<ProblemKey> problem_from_row(const Row& row) {
  const auto read = [](RowReader& reader) {
    const Blob id = reader.blob();
    ProblemKey problem;
    problem.operator_name = reader.text();
    problem.text = reader.text();
    if (id != problem_id(problem)) {
      throw Error(ErrorCode::kDatabase, "a problem whose identity is not that of its text");
    }
    return problem;
  };
  return decode_row(row, read);
}

}  // namespace vitune
