// tests/emulator/primitives/mbarrier.cuh -- Stands in for templates/primitives/mbarrier.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void mbarrier_init(u32 barrier, u32 arrivals) {
  auto& machine = *vitune_emulator::machine;
  machine.mbarrier_init(machine, shared_at(barrier, 8), arrivals);
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(u32 barrier) {
  auto& machine = *vitune_emulator::machine;
  machine.mbarrier_arrive(machine, shared_at(barrier, 8));
}
inline void mbarrier_arrive_when_copied(u32 barrier) {
  auto& machine = *vitune_emulator::machine;
  machine.mbarrier_arrive_when_copied(machine, shared_at(barrier, 8));
}
inline void mbarrier_wait(u32 barrier, u32 parity) {
  auto& machine = *vitune_emulator::machine;
  machine.mbarrier_wait(machine, shared_at(barrier, 8), parity);
}

template <int kRegisters>
inline void warpgroup_reg_dealloc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "as setmaxnreg asks");
}
template <int kRegisters>
inline void warpgroup_reg_alloc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "as setmaxnreg asks");
}

}  // namespace vitune
