// runtime/api/failed.h -- A failure with figures in its sentence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>

#include "runtime/api/last_error.h"

namespace vitune {

// Keeps a sentence put together as by printf() for vitune_last_error(), and gives `status` back.
template <typename... Values>
vitune_status failed(vitune_status status, const char* format, Values... values) noexcept {
  std::array<char, 512> sentence{};
  std::snprintf(sentence.data(), sentence.size(), format, values...);
  return fail(status, sentence.data());
}

}  // namespace vitune
