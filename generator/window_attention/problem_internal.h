// generator/window_attention/problem_internal.h -- The words of window attention, for the operators
// whose texts have them too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "generator/problem_words.h"
#include "generator/window_attention/problem.h"

namespace vitune::window_internal {

inline constexpr std::array<std::string_view, 5> kFlags = {"bf16", "fp16", "grid", "padding",
                                                           "pad_first"};
inline constexpr std::array<std::string_view, 9> kKeys = {"b", "image",  "window", "shift", "h",
                                                          "d", "layout", "scale",  "bias"};

// The problem that these words ask for, valid and canonical; others are left alone. `example`: a
// text that is right, for messages. Throws as WindowAttentionProblem::parse() does.
WindowAttentionProblem read_problem(const ProblemWords& words, std::string_view example);

}  // namespace vitune::window_internal
