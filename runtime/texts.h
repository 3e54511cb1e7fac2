// runtime/texts.h -- UTF-8 texts into buffers of fixed size.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace vitune {

// Copies as much of `text` as fits `capacity` > 0 bytes with a final 0, never a part of a
// character.
inline void copy_text(char* out, std::size_t capacity, std::string_view text) noexcept {
  std::size_t length = text.size();
  if (length > capacity - 1) {
    length = capacity - 1;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  }
  if (length > 0) std::memmove(out, text.data(), length);
  out[length] = '\0';
}

template <std::size_t kSize>
void copy_text(char (&out)[kSize], std::string_view text) noexcept {
  copy_text(out, kSize, text);
}

}  // namespace vitune
