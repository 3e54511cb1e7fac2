// cli/fleet/shell_word.cpp -- Quotes as every POSIX shell reads them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/shell_word.h"

namespace vitune {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%=";
  const bool is_plain = text.find_first_not_of(kPlain) == std::string_view::npos;
  // NAME=value in front of a command is no word of it.
  if (!text.empty() && is_plain && text.find('=') == std::string_view::npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string shell_words(const std::vector<std::string>& texts) {
  std::string line;
  for (const std::string& text : texts) line += (line.empty() ? "" : " ") + shell_word(text);
  return line;
}

}  // namespace vitune
