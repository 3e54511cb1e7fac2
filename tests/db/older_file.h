// tests/db/older_file.h -- Database files as older versions left them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>

namespace vitune::test {

// Makes `file` with the schema of `version` and all rows of the sample database that it can hold.
void make_older(const std::filesystem::path& file, std::size_t version);

}  // namespace vitune::test
