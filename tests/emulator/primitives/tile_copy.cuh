// tests/emulator/primitives/tile_copy.cuh -- Stands in for templates/primitives/tile_copy.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/cluster.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

inline void copy_tile(u32 to, const void* map, u32 barrier, int column, int row) {
  bring_box(to, map, 2, barrier, column, row, 0, 0);
}

inline void copy_tile_to_ranks(u32 to, const void* map, u32 barrier, int column, int row,
                               u16 ranks) {
  for (u32 rank = 0; rank < 16; ++rank) {
    if (!(ranks >> rank & 1)) continue;
    bring_box(peer_address(to, rank), map, 2, peer_address(barrier, rank), column, row, 0, 0);
  }
}

inline void store_tile(u32 from, const void* map, int column, int row) {
  auto& machine = *vitune_emulator::machine;
  walk_box(from, map, 2, column, row, 0, 0, [&](u32 place, const char* to, u32 bytes) {
    if (to == nullptr) return;
    // Seen on an H200: where the columns end within sixteen bytes, all sixteen are written.
    if (bytes < 16) machine.check_global(machine, to, 16, 16);
    machine.store_bulk(machine, const_cast<char*>(to), shared_at(place, 16), 16);
  });
  machine.commit_stores(machine);
}

template <int kPending>
inline void store_wait_read() {
  vitune_emulator::machine->wait_for_stores(*vitune_emulator::machine, kPending);
}

}  // namespace vitune
