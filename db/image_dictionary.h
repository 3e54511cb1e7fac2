// db/image_dictionary.h -- What kernels have in common, for Zstandard: images are packed with it.
//
// Never changed: rows name it by its number, and a database keeps its rows. A better one will be
// another file beside this one, with a number of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace vitune {

// The bytes of db/images.zdict, by `zstd --train` of 268 shipped images.
std::span<const unsigned char> image_dictionary();

}  // namespace vitune
