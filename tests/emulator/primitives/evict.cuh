// tests/emulator/primitives/evict.cuh -- Stands in for templates/primitives/evict.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/copy.cuh"
#include "primitives/piece.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline u64 evict_first() { return 0; }
inline u64 evict_last() { return 0; }

inline Piece<16> load_piece_evict(const void* from, u64) { return load_piece<16>(from); }
inline void cp_async_evict(u32 to, const void* from, u64) { cp_async<16>(to, from, true); }

inline void store_shared_piece(u32 to, const Piece<16>& v) {
  memcpy(shared_target(to, 16), v.words, 16);
}

}  // namespace vitune
