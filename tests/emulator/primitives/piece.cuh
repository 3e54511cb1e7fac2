// tests/emulator/primitives/piece.cuh -- Stands in for templates/primitives/piece.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <int kBytes>
struct Piece {
  u32 words[kBytes < 4 ? 1 : kBytes / 4];
};

enum class Keep { kUsual, kNot };

template <int kBytes, Keep kKeep = Keep::kUsual>
inline Piece<kBytes> load_piece(const void* from) {
  constexpr int kAccess = kBytes < 16 ? kBytes : 16;
  Piece<kBytes> piece = {};
  for (int i = 0; i < kBytes; i += kAccess) {
    const void* at = global_at<kAccess>(static_cast<const char*>(from) + i);
    memcpy(reinterpret_cast<char*>(piece.words) + i, at, kAccess);
  }
  return piece;
}

template <int kBytes>
inline Piece<kBytes> load_constant_piece(const void* from) {
  return load_piece<kBytes>(from);
}

template <Keep kKeep = Keep::kUsual, int kBytes>
inline void store_piece(void* to, const Piece<kBytes>& piece) {
  constexpr int kAccess = kBytes < 16 ? kBytes : 16;
  for (int i = 0; i < kBytes; i += kAccess) {
    memcpy(global_at<kAccess>(static_cast<char*>(to) + i),
           reinterpret_cast<const char*>(piece.words) + i, kAccess);
  }
}

}  // namespace vitune
