// tests/emulator/primitives/cluster.cuh -- Stands in for templates/primitives/cluster.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/mbarrier.cuh"
#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline u32 cluster_rank() { return vitune_emulator::machine->thread->rank; }

inline void cluster_barrier() {
  auto& machine = *vitune_emulator::machine;
  const auto& size = blockDim;
  machine.barrier(machine, vitune_emulator::Machine::kClusterBarrier,
                  machine.cluster * size.x * size.y * size.z);
}

inline u32 peer_address(u32 address, u32 rank) { return (rank + 1) * kPeerBase + address; }

inline void mbarrier_arrive_at_peer(u32 barrier) { mbarrier_arrive(barrier); }

}  // namespace vitune
