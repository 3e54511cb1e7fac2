// cli/fleet/shell_word.h -- A text as one word of a shell's command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vitune {

// As it is where no shell sees more in it than a word, else between single quotes.
std::string shell_word(std::string_view text);
// Words with a space between.
std::string shell_words(const std::vector<std::string>& texts);

}  // namespace vitune
