// core/printable.h -- Which characters of a foreign text may go to a terminal, and how many.
//
// Nothing that a terminal acts on: control characters (C0, DEL, C1), line and paragraph separators,
// and the marks that turn the direction of a text around, behind which it reads as another one. No
// state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vitune {

// Bytes of the well-formed, printable character of UTF-8 at the start of `text`; 0: there is none.
std::size_t printable_length(std::string_view text);

// True if a name may go to terminals and into tables: printable characters alone.
bool is_printable(std::string_view name);

// The most bytes of `text` up to `room` that end with a whole character.
inline std::size_t length_within(std::string_view text, std::size_t room) noexcept {
  if (text.size() <= room) return text.size();
  std::size_t length = room;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  return length;
}

// The text, or its beginning and "..." where it has more than `room` >= 3 bytes.
std::string shortened(std::string_view text, std::size_t room);

// A foreign name as a message may have it: shortened, and "?" if it is not printable.
std::string shown_name(std::string_view name, std::size_t most = 60);

}  // namespace vitune
