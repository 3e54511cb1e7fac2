// templates/collective/pipeline.cuh -- How a role goes through a ring of tiles in shared memory.
//
// Each tile has two barriers: `full` ends a phase when the copies into the tile are complete,
// `empty` when every warp that reads the tile has read it. Producers wait for empty tiles and fill
// them, consumers wait for full tiles and release them; each role goes through the tiles in order
// and keeps its own PipelineState.
//
// A barrier tells a phase only from the one before. So a role that waits for a phase must know that
// the phase before it is over: either it waits for every phase of a tile that it uses, or copies
// end in the order of their start (those of cp.async do, those of TMA do not).
#pragma once

#include "primitives/cluster.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"

namespace vitune {

// The tile of a ring of kStages tiles that a role comes to next.
template <int kStages>
struct PipelineState {
  int index = 0;
  u32 phase = 0;  // parity of the phase that fills the tile now
  __device__ __forceinline__ void advance() {
    if (++index == kStages) {
      index = 0;
      phase ^= 1;
    }
  }
  // The same as `count` times advance().
  __device__ __forceinline__ void skip(int count) {
    const u32 next = u32(index + count);
    index = int(next % kStages);
    phase ^= next / kStages & 1;
  }
};

// Releases a tile in all kCluster CTAs of a cluster, when all lanes of this warp have read it:
// arrives at the `empty` barriers that have this address there.
template <int kCluster>
__device__ __forceinline__ void release_tile(u32 empty) {
  const u32 lane = threadIdx.x % kWarpSize;
  __syncwarp();
  if constexpr (kCluster == 1) {
    if (lane == 0) mbarrier_arrive(empty);
  } else {
    if (lane < kCluster) mbarrier_arrive_at_peer(peer_address(empty, lane));
  }
}

}  // namespace vitune
