// catalogue/json_input.h -- Data files: read whole, parsed as JSON of bounded size and depth.
//
// Every error is Error(kUsage) and begins with the file and the place in it. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/printable.h"  // is_printable()

namespace vitune {

inline constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{64} << 20;
inline constexpr std::size_t kMaxName = 200;  // bytes

// Where in which file something is read; the beginning of every message.
struct Place {
  std::string text;
  [[noreturn]] void malformed(const std::string& what) const;
};

// The content of a regular file of at most kMaxFileBytes.
std::string read_file(const std::filesystem::path& path);

// Parses JSON of at most four million values and eight levels; `line` is the line of the file that
// `text` begins at, and `expected` says what should be there.
nlohmann::json parse_json(std::string_view text, const std::string& file, std::int64_t line,
                          const char* expected);

}  // namespace vitune
