// db/json_format.h -- What export and import agree on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vitune {

inline constexpr const char* kExportFormat = "vitune-export";
inline constexpr int kExportSchema = 1;

inline constexpr std::size_t kMaxImportBytes = std::size_t{64} << 20;
inline constexpr int kMaxImportDepth = 8;
inline constexpr std::int64_t kMaxImportRecords = 1'000'000;
// Values inside one record; a record has a few dozen.
inline constexpr int kMaxRecordValues = 1000;

}  // namespace vitune
