// core/data_dir.h -- Where the shipped data is: beside the program or library that asks for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_trust.h"

namespace vitune {

// The folders that find_data_dir_near() tries for `program`, nearest first: share/vitune and data
// of its own folder and of the one above it; share/vitune beside lib of a library in lib/TRIPLET.
std::vector<std::filesystem::path> data_dir_candidates(const std::filesystem::path& program);

// The data folder that belongs to `program` (a program or a library), resolved: share/vitune beside
// an installed one, data/ beside a built one, which is a link to that of the source tree. A folder
// that another user could have written, by core/file_trust and trust_of_program(), is not taken:
// one clause says why to `refused`. Nothing if there is none.
std::optional<std::filesystem::path> find_data_dir_near(
    const std::filesystem::path& program,
    const std::function<void(const std::string&)>& refused = {});

// The folder of the report's program: report/ in a data folder that find_data_dir_near() gave, or
// the one of its source tree. Nothing if there is none. Throws Error(kFailure) if another user
// could have written anything in it.
std::optional<std::filesystem::path> find_report_program(const std::filesystem::path& program,
                                                         const std::filesystem::path& data_dir);

// The database of shipped winners in a data folder.
std::filesystem::path shipped_database(const std::filesystem::path& data_dir);  // winners.db

// Whose shipped database is used: `trust`, and that of trust_of_program(). It may have several
// names.
Trust trust_of_shipped(const std::filesystem::path& program, Trust trust);

}  // namespace vitune
