// tests/emulator/primitives/tensor_copy.cuh -- Stands in for templates/primitives/tensor_copy.cuh.
//
// Written from the PTX ISA ("cp.async.bulk.tensor", "cp.async.bulk", "Swizzling modes"): a box goes
// to shared memory row by row, chunks of 16 bytes trade places after the bits of their address.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/mbarrier.cuh"
#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void mbarrier_expect(u32 barrier, u32 bytes) {
  auto& machine = *vitune_emulator::machine;
  machine.mbarrier_expect(machine, shared_at(barrier, 8), bytes);
}

inline void prefetch_map(const void*) {}

// Calls `piece(shared address, global address or null, bytes)` for what a box has of the tensor, 16
// bytes or less at a time, and for what lies outside.
template <class Piece>
inline void walk_box(u32 shared, const void* map, unsigned rank, int column, int row, int head,
                     int batch, Piece piece) {
  auto& machine = *vitune_emulator::machine;
  vitune_emulator::TensorMap view;
  memcpy(&view, map, sizeof(view));
  if (view.rank != rank) machine.fail(machine, "a map of another number of dimensions");
  if (shared % 128 != 0) machine.fail(machine, "a box that does not start at 128 bytes");
  // Seen on an H200: an illegal instruction, although the ISA asks for no such thing.
  if (column % 8 != 0) machine.fail(machine, "a box whose columns do not start at 16 bytes");
  const u32 pitch = view.swizzle != 0 ? view.swizzle : 2 * view.box[0];
  const u64 rows = view.extents[1];
  const bool there =
      head >= 0 && u64(head) < view.extents[2] && batch >= 0 && u64(batch) < view.extents[3];
  for (u32 r = 0; r < view.box[1]; ++r) {
    for (u32 c = 0; c < view.box[0]; c += 8) {
      const bool inside =
          there && row >= 0 && u64(row) + r < rows && u64(column) + c < view.extents[0];
      const char* global = nullptr;
      u32 there_bytes = 16;  // of these sixteen; the others lie outside
      if (inside) {
        global = view.address + 2 * (u64(column) + c) + (u64(row) + r) * view.strides[0] +
                 u64(head) * view.strides[1] + u64(batch) * view.strides[2];
        there_bytes = u32(min<u64>(16, 2 * (view.extents[0] - column - c)));
        machine.check_global(machine, global, there_bytes, 16);
      }
      const u32 plain = shared + r * pitch + 2 * c;
      const u32 swap = view.swizzle != 0 ? plain >> 7 & (view.swizzle / 16 - 1) : 0;
      const u32 place = plain ^ swap << 4;
      piece(place, global, there_bytes);
      if (there_bytes < 16) piece(place + there_bytes, nullptr, 16 - there_bytes);
    }
  }
}

inline void bring_box(u32 to, const void* map, unsigned rank, u32 barrier, int column, int row,
                      int head, int batch) {
  auto& machine = *vitune_emulator::machine;
  const char* arrival = shared_at(barrier, 8);
  walk_box(to, map, rank, column, row, head, batch, [&](u32 place, const char* from, u32 bytes) {
    const u32 unit = bytes == 16 ? 16 : 2;
    machine.copy_bulk(machine, arrival, shared_at(place, unit), from, bytes);
  });
}

inline void copy_box(u32 to, const void* map, u32 barrier, int column, int row, int head,
                     int batch) {
  bring_box(to, map, 4, barrier, column, row, head, batch);
}

inline void copy_bytes(u32 to, u64 from, u32 bytes, u32 barrier) {
  auto& machine = *vitune_emulator::machine;
  const char* arrival = shared_at(barrier, 8);
  if (to % 16 != 0 || bytes % 16 != 0)
    machine.fail(machine, "a copy that is not of 16-byte pieces");
  for (u32 i = 0; i < bytes; i += 16) {
    const char* source = reinterpret_cast<const char*>(from + i);
    machine.check_global(machine, source, 16, 16);
    machine.copy_bulk(machine, arrival, shared_at(to + i, 16), source, 16);
  }
}

}  // namespace vitune
