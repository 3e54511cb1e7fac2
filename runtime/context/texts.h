// runtime/context/texts.h -- UTF-8 texts in little room.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace vitune {

// The most bytes of `text` up to `room` that end with a whole character.
inline std::size_t length_within(std::string_view text, std::size_t room) noexcept {
  if (text.size() <= room) return text.size();
  std::size_t length = room;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  return length;
}

// The text, or its beginning and "..." where it has more than `room` >= 3 bytes.
inline std::string shortened(std::string_view text, std::size_t room) {
  if (text.size() <= room) return std::string(text);
  return std::string(text.substr(0, length_within(text, room - 3))) + "...";
}

// Copies as much of `text` as fits `capacity` > 0 bytes with a final 0, never a part of a
// character.
inline void copy_text(char* out, std::size_t capacity, std::string_view text) noexcept {
  const std::size_t length = length_within(text, capacity - 1);
  if (length > 0) std::memmove(out, text.data(), length);
  out[length] = '\0';
}

template <std::size_t kSize>
void copy_text(char (&out)[kSize], std::string_view text) noexcept {
  copy_text(out, kSize, text);
}

}  // namespace vitune
