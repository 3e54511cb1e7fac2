// templates/primitives/cluster.cuh -- CTAs of a cluster: their ranks, barriers, arrivals at peers.
//
// PTX ISA, "Cluster of Cooperative Thread Arrays", sm_90 and later. A CTA must not end while a peer
// may still arrive at its barriers or copy into its shared memory.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// This CTA's number in its cluster; 0 without clusters.
__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of the cluster. Barriers whose initialization was fenced before (mbarrier.cuh) can be
// used after; for other writes a release would be needed.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.relaxed;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

// The address within the cluster of what has this address in the CTA of that rank.
__device__ __forceinline__ u32 peer_address(u32 address, u32 rank) {
  u32 peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}

// mbarrier_arrive() at an address within the cluster. It says that this thread has read something;
// what it wrote is not seen by a peer: for that a release at the cluster's scope would be needed,
// which ptxas makes a fence of the whole device.
__device__ __forceinline__ void mbarrier_arrive_at_peer(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace vitune
