// tests/emulator/primitives/sync.cuh -- Stands in for templates/primitives/sync.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline void wait_for_earlier_grids() {
  vitune_emulator::machine->wait_for_earlier(*vitune_emulator::machine);
}

template <int kId, int kThreads>
inline void named_barrier() {
  static_assert(kId >= 0 && kId < 16 && kThreads % kWarpSize == 0, "as bar.sync asks for");
  vitune_emulator::machine->barrier(*vitune_emulator::machine, kId, kThreads);
}

template <int kGroups, int kThreads>
inline void group_barrier(int group) {
  static_assert(kGroups >= 1 && kGroups <= 8, "a CTA is split into 1 to 8 groups");
  if constexpr (kThreads == kWarpSize) {
    __syncwarp();
  } else {
    const unsigned id = kGroups == 1 ? 1 : unsigned(group) + 1;
    vitune_emulator::machine->barrier(*vitune_emulator::machine, id, kThreads);
  }
}

}  // namespace vitune
