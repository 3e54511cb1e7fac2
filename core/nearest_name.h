// core/nearest_name.h -- The known name that someone who mistyped most likely meant.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace vitune {

// The candidate with the least edit distance to `word`, or nothing if none is close (more than a
// third of its letters differ).
std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string> candidates);

}  // namespace vitune
