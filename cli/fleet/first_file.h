// cli/fleet/first_file.h -- A file whose first writer decides for all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

namespace vitune {

// Makes `bytes` the content of `path`, there as a whole, unless something has that name: of all
// that come at once, on any machine, one writes. Throws Error(kFailure) that says what cannot be
// made.
void write_if_first(const std::filesystem::path& path, std::string_view bytes);

// The same where a file system has no hard links, for which write_if_first() calls it: whoever
// makes PATH.claim writes, and the others wait for `path`. After `patience` that is
// Error(kFailure), since the claim may be that of a process that died.
void write_if_claimed(const std::filesystem::path& path, std::string_view bytes,
                      std::chrono::milliseconds patience);

}  // namespace vitune
