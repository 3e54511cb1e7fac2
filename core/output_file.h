// core/output_file.h -- Writes a file that the user named, so that nobody sees half of it.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <system_error>

namespace vitune {

// Makes `bytes` the content of `path`; symbolic links are followed and stay. A regular file, or one
// that is not there yet, is written beside its place, synced and renamed: after an error the old
// one is as it was. An old one's permissions are kept. Whatever else is there (a pipe, a device)
// is written into and never replaced.
std::error_code write_output_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace vitune
