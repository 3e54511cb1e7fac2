// tests/emulator/primitives/store_async.cuh -- Stands in for templates/primitives/store_async.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <int kBytes>
inline void store_words_async(u32 to, const u32* words, u32 barrier) {
  auto& machine = *vitune_emulator::machine;
  if (to / kPeerBase != barrier / kPeerBase) {
    machine.fail(machine, "an asynchronous store and its barrier in two CTAs");
  }
  machine.store_async(machine, shared_at(barrier, 8), shared_at(to, kBytes), words, kBytes);
}

inline void store_async_16(u32 to, const uint4& words, u32 barrier) {
  const u32 four[] = {words.x, words.y, words.z, words.w};
  store_words_async<16>(to, four, barrier);
}

inline void store_async_8(u32 to, u32 first, u32 second, u32 barrier) {
  const u32 two[] = {first, second};
  store_words_async<8>(to, two, barrier);
}

}  // namespace vitune
