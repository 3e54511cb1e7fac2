// tests/emulator/primitives/store_async.cuh -- Stands in for templates/primitives/store_async.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void store_async_8(u32 to, u32 first, u32 second, u32 barrier) {
  auto& machine = *vitune_emulator::machine;
  if (to / kPeerBase != barrier / kPeerBase) {
    machine.fail(machine, "an asynchronous store and its barrier in two CTAs");
  }
  const u32 words[] = {first, second};
  machine.store_async(machine, shared_at(barrier, 8), shared_at(to, 8), words, 8);
}

}  // namespace vitune
