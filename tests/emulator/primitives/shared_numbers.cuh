// tests/emulator/primitives/shared_numbers.cuh -- Stands in for the templates' file of this name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void store_shared_numbers(u32 address, float first, float second) {
  const float both[2] = {first, second};
  memcpy(shared_target(address, 8), both, 8);
}

}  // namespace vitune
