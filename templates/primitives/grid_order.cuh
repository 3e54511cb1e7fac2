// templates/primitives/grid_order.cuh -- A grid that lets the next one read what came before both.
//
// For two kernels of one call, the second of which begins while the first one runs. PTX ISA,
// griddepcontrol; sm_90 and later. Waiting itself is in sync.cuh.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// After wait_for_earlier_grids(): the grid that was launched next, with an early start, may begin.
__device__ __forceinline__ void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The grid before this one did the above. What the grids before *that* one wrote is there, without
// a wait; what it writes itself is, after wait_for_earlier_grids().
__device__ __forceinline__ void started_by_a_grid_that_waited() {}

}  // namespace vitune
