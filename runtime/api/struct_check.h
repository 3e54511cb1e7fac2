// runtime/api/struct_check.h -- Structs of callers who may know an older or a newer version.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vitune {

// A struct of a caller that is larger than this is taken for one whose size was never set.
inline constexpr std::size_t kMaxStructBytes = 64 << 10;

// Checks the size of a struct that the caller hands over: `least` is what its first public version
// had, `ours` what this library knows. What it has beyond ours must be zero.
void check_input_struct(const char* name, const void* data, std::size_t size, std::size_t least,
                        std::size_t ours);
// The same for a struct that is filled in: what lies beyond ours becomes zero.
void check_output_struct(const char* name, void* data, std::size_t size, std::size_t least,
                         std::size_t ours);

}  // namespace vitune
