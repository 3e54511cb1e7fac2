// db/binary_table.h -- Rows of the table binary: compiled kernels, packed with Zstandard.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "db/records.h"
#include "db/row.h"

namespace vitune {

// SHA-256 of an image as it is loaded.
Digest image_digest(std::span<const std::byte> image);
// The key of one image of a kernel; without `image` what the keys of all its images begin with.
Row binary_key(const Digest& kernel_key, const std::optional<Digest>& image);
// Throws Error(kFailure) if the image is larger than 64 MiB.
Row binary_row(const Binary& binary);
// Nothing if the image does not unpack to exactly the stored number of bytes, or is not the one
// whose digest is in the key.
std::optional<Binary> binary_from_row(const Row& row);
// The digest of the image that a row ends with, packed and after its size; nothing if it does not
// unpack.
std::optional<Digest> packed_image_digest(const Row& row);

}  // namespace vitune
