// cli/arguments/data_files.h -- Where the shipped data is: presets, winners and recordings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/arguments/session.h"
#include "core/data_dir.h"

namespace vitune {

// --data-dir, else what find_data_dir_near() gives for the program. Nothing if there is none;
// Error(kUsage) if --data-dir is not a folder.
std::optional<std::filesystem::path> find_data_dir(const Session& session);

// Where there is none: that it was not found, and which folder was not taken because of another
// user.
std::string missing_data(const Session& session);

// find_data_dir(), or Error(kFailure) that says where it was looked for.
std::filesystem::path require_data_dir(const Session& session);

std::filesystem::path shipped_recording(const std::filesystem::path& data_dir);  // h200.recording

}  // namespace vitune
