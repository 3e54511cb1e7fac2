// runtime/context/texts.h -- UTF-8 texts in little room.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "core/printable.h"

namespace vitune {

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
