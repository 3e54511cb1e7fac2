// core/data_dir.h -- Where the shipped data is: beside the program or library that asks for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace vitune {

// The folders that find_data_dir_near() tries for `program`, nearest first: share/vitune and data
// of its own folder and of the ones above it.
std::vector<std::filesystem::path> data_dir_candidates(const std::filesystem::path& program);

// The data folder that belongs to `program` (a program or a library): share/vitune beside an
// installed one, data/ of the source tree above a built one. A folder that others may write, or
// that neither root, the program's owner nor the user owns, is not taken. Nothing if there is none.
std::optional<std::filesystem::path> find_data_dir_near(const std::filesystem::path& program);

// The database of shipped winners in a data folder.
std::filesystem::path shipped_database(const std::filesystem::path& data_dir);  // winners.db

}  // namespace vitune
