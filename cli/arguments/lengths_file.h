// cli/arguments/lengths_file.h -- Lengths of packed sequences that a problem's text takes from a
// file: lengths=@FILE.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vitune {

// The text with the content of FILE in the place of each lengths=@FILE and lengths_k=@FILE: numbers
// or LENGTHxCOUNT, with commas, blanks or line breaks between, of which equal neighbours are
// counted together. Other words stay as they are. Throws Error(kUsage) that names a file that
// cannot be read, is empty, or makes a text that is too long.
std::string with_lengths_of_files(std::string_view text);

}  // namespace vitune
