// cli/output/lines.cpp -- Widths of texts, and lines broken between words.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/lines.h"

#include <algorithm>

namespace vitune {
namespace {

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::size_t display_width(std::string_view text) {
  return text.size() -
         static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation_byte));
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t width = 0, end = 0;
  while (end < text.size()) {
    if (!is_continuation_byte(text[end]) && ++width > columns) break;
    ++end;
  }
  return text.substr(0, end);
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, display_width(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (display_width(text) > width) {
    const std::string_view line = first_columns(text, width);
    std::size_t end = line.size();
    if (text[end] != ' ') end = line.rfind(' ');
    const std::string_view head = text.substr(0, end == std::string_view::npos ? 0 : end);
    if (head.find_first_not_of(' ') == std::string_view::npos) {  // one word
      lines.emplace_back(line);
      text.remove_prefix(line.size());
      continue;
    }
    lines.emplace_back(head.substr(0, head.find_last_not_of(' ') + 1));
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

std::string fill_text(std::string_view text, std::size_t width, std::size_t indent) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::size_t room = width;
    while (display_width(line) > room) {
      const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
      std::size_t space = line.rfind(' ', first_columns(line, room).size());
      if (space == std::string_view::npos || space <= begin) space = line.find(' ', begin);
      if (space == std::string_view::npos) break;
      filled += std::string(line.substr(0, space)) + "\n" + std::string(indent, ' ');
      line.remove_prefix(std::min(line.find_first_not_of(' ', space), line.size()));
      room = width > indent ? width - indent : 1;
    }
    filled += std::string(line) + "\n";
  }
  return filled;
}

}  // namespace vitune
