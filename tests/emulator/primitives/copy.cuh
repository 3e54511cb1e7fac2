// tests/emulator/primitives/copy.cuh -- Stands in for templates/primitives/copy.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

// The global bytes at `at`, checked.
template <int kBytes>
inline void* global_at(const void* at) {
  auto& machine = *vitune_emulator::machine;
  machine.check_global(machine, at, kBytes, kBytes);
  return const_cast<void*>(at);
}

template <int kBytes>
inline void cp_async(u32 to, const void* from, bool valid) {
  auto& machine = *vitune_emulator::machine;
  const void* bytes = valid ? global_at<kBytes>(from) : nullptr;
  machine.copy_async(machine, shared_at(to, kBytes), bytes, kBytes);
}

template <int kBytes>
inline void copy_chunk(u32 to, const void* from, bool valid) {
  const char* source = static_cast<const char*>(from);
  for (u32 i = 0; i < 16; i += kBytes) {
    if (kBytes >= 4) {
      cp_async<kBytes>(to + i, source + i, valid);
      continue;
    }
    char* target = shared_target(to + i, kBytes);
    const void* bytes = valid ? global_at<kBytes>(source + i) : nullptr;
    if (valid) {
      memcpy(target, bytes, kBytes);
    } else {
      memset(target, 0, kBytes);
    }
  }
}

inline void copy_commit() { vitune_emulator::machine->copy_commit(*vitune_emulator::machine); }

template <int kPending>
inline void copy_wait() {
  vitune_emulator::machine->copy_wait(*vitune_emulator::machine, kPending);
}

inline int recomputed(int value) { return value; }

template <int kBytes>
inline void store_chunk(void* to, uint4 value) {
  const char* from = reinterpret_cast<const char*>(&value);
  for (int i = 0; i < 16; i += kBytes) {
    memcpy(global_at<kBytes>(static_cast<char*>(to) + i), from + i, kBytes);
  }
}

}  // namespace vitune
