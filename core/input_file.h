// core/input_file.h -- Reads a file that anybody may have put there, within a bound.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace vitune {

enum class InputFault {
  kMissing,
  kIrregular,  // a folder, a pipe, a device
  kTooLarge,
  kUnreadable,
};

// The content of a file, or why there is none.
struct InputFile {
  std::optional<InputFault> fault;
  std::string content;
  std::uintmax_t bytes = 0;  // of a file that is too large
  std::error_code error;     // of one that is unreadable
};

// The regular file at `path` (links are followed) of at most `most` bytes. What grows meanwhile is
// read up to the size that it had. Waits for no pipe's other end, and reads no device.
InputFile read_input_file(const std::filesystem::path& path, std::uintmax_t most);

}  // namespace vitune
