// cli/output/lines.h -- Lines that fit a width, counted in characters as a terminal shows them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vitune {

// Characters of well-formed UTF-8, not bytes.
std::size_t display_width(std::string_view text);

// The longest start of `text` that has at most `columns` characters; never cuts one in two.
std::string_view first_columns(std::string_view text, std::size_t columns);

// Characters of the longest word between spaces.
std::size_t longest_word(std::string_view text);

// `text` in lines of at most `width` characters, broken between words; a longer word is broken
// where the line ends, so that nothing is lost. At least one line; `width` is at least 1.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// `text` with its lines broken between words, so that none has more than `width` characters unless
// a word has; what is carried over begins `indent` columns in.
std::string fill_text(std::string_view text, std::size_t width, std::size_t indent = 0);

}  // namespace vitune
