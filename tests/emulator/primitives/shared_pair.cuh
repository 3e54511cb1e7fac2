// tests/emulator/primitives/shared_pair.cuh -- Stands in for templates/primitives/shared_pair.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline uint2 load_shared_8(u32 address) {
  uint2 value;
  memcpy(&value, shared_source(address, 8), 8);
  return value;
}

}  // namespace vitune
