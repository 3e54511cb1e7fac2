// db/binary_table.h -- Rows of the table binary: compiled kernels, packed with Zstandard.
#pragma once

#include <optional>

#include "db/records.h"
#include "db/row.h"

namespace vitune {

// Throws Error(kFailure) if the image is larger than 64 MiB.
Row binary_row(const Binary& binary);
// Nothing if the image does not unpack to exactly the stored number of bytes.
std::optional<Binary> binary_from_row(const Row& row);

}  // namespace vitune
