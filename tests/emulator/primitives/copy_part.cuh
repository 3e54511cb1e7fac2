// tests/emulator/primitives/copy_part.cuh -- Stands in for templates/primitives/copy_part.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/copy.cuh"

namespace vitune {

template <int kBytes>
inline void copy_part(u32 to, const void* from, int valid) {
  auto& machine = *vitune_emulator::machine;
  const char* source = static_cast<const char*>(from);
  if (valid < 0 || valid > 16 || valid % 2 != 0) machine.fail(machine, "no such part of a chunk");
  // The instruction is aligned to its size even where it reads less.
  if (valid > 0 && reinterpret_cast<uintptr_t>(from) % kBytes != 0) {
    machine.fail(machine, "misaligned global access");
  }
  if (kBytes == 16) shared_at(to, 16);
  for (u32 i = 0; i < 16; i += 2) {
    const bool is_read = int(i) < valid;
    char* target = kBytes >= 4 ? shared_at(to + i, 2) : shared_target(to + i, 2);
    const void* bytes = is_read ? global_at<2>(source + i) : nullptr;
    if (kBytes >= 4) {
      machine.copy_async(machine, target, bytes, 2);
    } else if (is_read) {
      memcpy(target, bytes, 2);
    } else {
      memset(target, 0, 2);
    }
  }
}

}  // namespace vitune
