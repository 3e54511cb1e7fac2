// core/printable.cpp -- Takes UTF-8 apart, character by character.
// SPDX-License-Identifier: Apache-2.0
#include "core/printable.h"

namespace vitune {
namespace {

// True if a character begins another line or turns the direction of a text: U+061C, U+200E, U+200F,
// U+2028 to U+202E, U+2066 to U+2069.
bool moves_text(std::string_view character) {
  if (character == "\xd8\x9c") return true;
  if (character.size() != 3 || character[0] != '\xe2') return false;
  const auto last = static_cast<unsigned char>(character[2]);
  if (character[1] == '\x80') return last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae);
  return character[1] == '\x81' && last >= 0xa6 && last <= 0xa9;
}

}  // namespace

std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead >= 0x20 && lead < 0x7f) return 1;
  const std::size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool c1_control = lead == 0xc2 && second < 0xa0;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  const bool refused = c1_control || overlong || surrogate || too_large;
  return refused || moves_text(text.substr(0, length)) ? 0 : length;
}

bool is_printable(std::string_view name) {
  while (!name.empty()) {
    const std::size_t length = printable_length(name);
    if (length == 0) return false;
    name.remove_prefix(length);
  }
  return true;
}

std::string shortened(std::string_view text, std::size_t room) {
  if (text.size() <= room) return std::string(text);
  return std::string(text.substr(0, length_within(text, room - 3))) + "...";
}

std::string shown_name(std::string_view name, std::size_t most) {
  return is_printable(name) ? shortened(name, most) : "?";
}

}  // namespace vitune
