// tests/emulator/primitives/load.cuh -- Stands in for templates/primitives/load.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline uint4 load_past_l1(const void* from) {
  auto& machine = *vitune_emulator::machine;
  machine.check_global(machine, from, 16, 16);
  uint4 value;
  memcpy(&value, from, 16);
  return value;
}

}  // namespace vitune
