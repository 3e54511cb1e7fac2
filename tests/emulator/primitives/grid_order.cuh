// tests/emulator/primitives/grid_order.cuh -- Stands in for templates/primitives/grid_order.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline void let_next_grid_start() {}

inline void started_by_a_grid_that_waited() {
  vitune_emulator::machine->begin_before_the_last(*vitune_emulator::machine);
}

}  // namespace vitune
