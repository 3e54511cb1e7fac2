// db/device_table.h -- Rows of the tables device and problem, and their identities.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/device_info.h"
#include "db/row.h"
#include "db/store.h"

namespace vitune {

// The first 16 bytes of the SHA-256 of the device's key.
Blob device_id(const DeviceInfo& device);
// The first 16 bytes of the SHA-256 of operator, line feed, text.
Blob problem_id(const ProblemKey& problem);

// The UUID is not stored: it identifies a machine and is for locks only.
Row device_row(const DeviceInfo& device);
std::optional<DeviceInfo> device_from_row(const Row& row);

// Throws Error(kFailure) for a name or text that could not be exported: see is_plain_text().
Row problem_row(const ProblemKey& problem);
std::optional<ProblemKey> problem_from_row(const Row& row);

// True if `text` has 1 to `limit` characters, all of them letters, digits or _ =.,:@x*%/+-[]()
bool is_plain_text(std::string_view text, std::size_t limit);

}  // namespace vitune
