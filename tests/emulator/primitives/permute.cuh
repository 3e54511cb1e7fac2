// tests/emulator/primitives/permute.cuh -- Stands in for templates/primitives/permute.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline u32 permute_bytes(u32 low, u32 high, u32 selector) {
  const u64 all = u64(high) << 32 | low;
  u32 bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15;
    const u32 byte = u32(all >> (8 * (nibble & 7))) & 255;
    bytes |= (nibble < 8 ? byte : (byte & 128) != 0 ? 255u : 0u) << (8 * i);
  }
  return bytes;
}

}  // namespace vitune
