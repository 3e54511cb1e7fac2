// tests/emulator/primitives/shared.cuh -- Stands in for templates/primitives/shared.cuh.
//
// A shared address is the offset in the CTA's dynamic shared memory plus kSharedBase, so that an
// address that was never set is outside; one within the cluster has the CTA's rank in front
// (cluster.cuh). Every access is checked for bounds and alignment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline constexpr u32 kSharedBase = 1024, kPeerBase = 1 << 24;

inline char* shared_at(u32 address, u32 bytes) {
  auto& machine = *vitune_emulator::machine;
  if (address % bytes != 0) machine.fail(machine, "misaligned access to shared memory");
  u32 rank = machine.thread->rank;
  if (address >= kPeerBase) {
    rank = address / kPeerBase - 1;
    address %= kPeerBase;
    if (rank >= machine.cluster) machine.fail(machine, "an address in a CTA that there is not");
  }
  if (address < kSharedBase || address - kSharedBase + bytes > machine.shared_bytes) {
    machine.fail(machine, "access beyond the shared memory of the launch");
  }
  return shared_memory + rank * kSharedCapacity + (address - kSharedBase);
}

// The same place, to be read by a thread.
inline const char* shared_source(u32 address, u32 bytes, unsigned reader) {
  const char* place = shared_at(address, bytes);
  vitune_emulator::machine->note_read(*vitune_emulator::machine, place, bytes, reader);
  return place;
}
inline const char* shared_source(u32 address, u32 bytes) {
  return shared_source(address, bytes, vitune_emulator::machine->thread->linear);
}

inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(static_cast<const char*>(pointer) - shared_memory) + kSharedBase;
}

struct MatrixLoad {
  u32 address;
  u32* registers;
};

// ldmatrix as the PTX ISA has it: lane 8i + r names row r of matrix i; lane l receives word l % 4
// of row l / 4 of each matrix, or of its transpose.
template <int kMatrices, bool kTrans>
inline void emulate_ldmatrix(u32* registers, u32 address) {
  MatrixLoad mine{address, registers};
  vitune_emulator::warp_collective(mine, [](vitune_emulator::Machine& machine, MatrixLoad** lanes) {
    const unsigned first = machine.thread->linear / 32 * 32;
    for (int i = 0; i < kMatrices; ++i) {
      u16 matrix[8][8];
      for (int r = 0; r < 8; ++r) {
        const int lane = 8 * i + r;  // the row is read for whoever gives its address
        memcpy(matrix[r], shared_source(lanes[lane]->address, 16, first + lane), 16);
      }
      for (int l = 0; l < 32; ++l) {
        const int row = l / 4, column = 2 * (l % 4);
        const u16 low = kTrans ? matrix[column][row] : matrix[row][column];
        const u16 high = kTrans ? matrix[column + 1][row] : matrix[row][column + 1];
        lanes[l]->registers[i] = low | u32(high) << 16;
      }
    }
  });
}

inline void ldmatrix_x1(u32& r0, u32 address) { emulate_ldmatrix<1, false>(&r0, address); }
inline void ldmatrix_x1_trans(u32& r0, u32 address) { emulate_ldmatrix<1, true>(&r0, address); }
inline void ldmatrix_x2(u32& r0, u32& r1, u32 address) {
  u32 r[2];
  emulate_ldmatrix<2, false>(r, address);
  r0 = r[0], r1 = r[1];
}
inline void ldmatrix_x2_trans(u32& r0, u32& r1, u32 address) {
  u32 r[2];
  emulate_ldmatrix<2, true>(r, address);
  r0 = r[0], r1 = r[1];
}
inline void ldmatrix_x4(u32 (&r)[4], u32 address) { emulate_ldmatrix<4, false>(r, address); }
inline void ldmatrix_x4_trans(u32 (&r)[4], u32 address) { emulate_ldmatrix<4, true>(r, address); }

inline u32 transposed(u32 word) {
  u32 mine = word;
  vitune_emulator::warp_collective(mine, [](vitune_emulator::Machine&, u32** lanes) {
    u16 matrix[8][8];
    for (int l = 0; l < 32; ++l) memcpy(&matrix[l / 4][2 * (l % 4)], lanes[l], 4);
    for (int l = 0; l < 32; ++l) {
      *lanes[l] = matrix[2 * (l % 4)][l / 4] | u32(matrix[2 * (l % 4) + 1][l / 4]) << 16;
    }
  });
  return mine;
}

// The same place, to be written by this thread.
inline char* shared_target(u32 address, u32 bytes) {
  char* place = shared_at(address, bytes);
  vitune_emulator::machine->note_write(*vitune_emulator::machine, place, bytes);
  return place;
}
inline void store_shared(u32 address, u32 value) { memcpy(shared_target(address, 4), &value, 4); }
inline void store_shared_u16(u32 address, u16 value) {
  memcpy(shared_target(address, 2), &value, 2);
}
inline u32 load_shared(u32 address) {
  u32 value;
  memcpy(&value, shared_source(address, 4), 4);
  return value;
}
inline u16 load_shared_u16(u32 address) {
  u16 value;
  memcpy(&value, shared_source(address, 2), 2);
  return value;
}
inline uint4 load_shared_16(u32 address) {
  uint4 value;
  memcpy(&value, shared_source(address, 16), 16);
  return value;
}

}  // namespace vitune
