// templates/linear/ring_sm90.cuh -- The shared memory of a kernel of the family sm90: slots, their
// barriers, places.
//
// Slots of x and w pass from the producer to the consumers in a ring. Each has two barriers: `full`
// ends a phase when all of its bytes have come, from both CTAs of a pair, `empty` when every warp
// of both CTAs that reads it has. Both CTAs take the same slots in the same order, so that what one
// copies into the other finds its slot empty there too.
//
// A barrier tells a phase only from the one before. So whoever waits for a phase must know that the
// one before is over. Warpgroups that share tiles wait for every phase; in ping-pong one takes its
// turn when the one before it has waited for all of its own.
#pragma once

#include "linear/config_sm90.cuh"
#include "primitives/cluster.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"

namespace vitune {

// A role's place in a ring of kSlots slots.
template <int kSlots>
struct PipelineState {
  int slot = 0;
  u32 parity = 0;  // of the phase that fills the slot now
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
  // As that many times advance().
  __device__ __forceinline__ void skip(int count) {
    const u32 next = u32(slot + count);
    slot = int(next % kSlots);
    parity ^= next / kSlots & 1;
  }
};

template <class T>
struct LinearShared {
  u32 base;

  __device__ __forceinline__ u32 x(int slot) const { return base + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 w(int slot) const { return x(slot) + T::kXBytes; }
  __device__ __forceinline__ u32 staging(int warp) const {
    return base + T::kStagingOffset + warp * T::kStagingBytes;
  }
  // Of the second result.
  __device__ __forceinline__ u32 second_staging(int warp) const {
    return base + T::kSecondOffset + warp * T::kSecondBytes;
  }
  __device__ __forceinline__ u32 columns(int group) const {
    return base + T::kColumnOffset + group * T::kColumnBytes;
  }
  __device__ __forceinline__ u32 full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 empty(int slot) const { return barrier(T::kStages + slot); }
  // Of a shared tile: when the warpgroup before this one is kLead steps in. In ping-pong: this
  // warpgroup's turn.
  __device__ __forceinline__ u32 turn(int group) const { return barrier(2 * T::kStages + group); }
  // The mean and 1 / deviation of a tile's row, 8 bytes, and the barriers of these.
  __device__ __forceinline__ u32 merged(int slot, int row) const {
    return base + T::kMergedOffset + (slot * T::kBlockM + row) * 8;
  }
  __device__ __forceinline__ u32 merged_full(int slot) const {
    return barrier(2 * T::kStages + T::kGroups + slot);
  }
  __device__ __forceinline__ u32 merged_empty(int slot) const {
    return merged_full(T::kMerged + slot);
  }
  // When a warp's staging buffer holds what is to be added.
  __device__ __forceinline__ u32 residual(int warp, int buffer) const {
    return merged_full(2 * T::kMerged + warp * T::kStoreBuffers + buffer);
  }

  // By one thread, before any other of the cluster uses a barrier.
  __device__ __forceinline__ void init() const {
    constexpr int kTileWarps = 4 * (T::kPingPong ? 1 : T::kGroups);
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(full(slot), 1);
      mbarrier_init(empty(slot), kTileWarps * T::kCluster);
    }
    for (int group = 0; group < T::kGroups; ++group) mbarrier_init(turn(group), 4);
    for (int slot = 0; slot < T::kMerged; ++slot) {
      mbarrier_init(merged_full(slot), 3);  // the warps beside the copying one
      mbarrier_init(merged_empty(slot), kTileWarps);
    }
    for (int i = 0; i < T::kResidualBarriers; ++i) mbarrier_init(residual(0, i), 1);
    if constexpr (T::kPingPong) {
      for (int i = 0; i < 4; ++i) mbarrier_arrive(turn(0));  // whose turn it is at first
    }
    mbarrier_init_fence();
  }

  __device__ __forceinline__ void wait_for_empty(const PipelineState<T::kStages>& at) const {
    mbarrier_wait(empty(at.slot), at.parity ^ 1);
  }

  // When all lanes of this warp have read the slot.
  __device__ __forceinline__ void give_back(int slot) const {
    const u32 lane = threadIdx.x % kWarpSize;
    __syncwarp();
    if constexpr (T::kCluster == 1) {
      if (lane == 0) mbarrier_arrive(empty(slot));
    } else {
      if (lane < T::kCluster) mbarrier_arrive_at_peer(peer_address(empty(slot), lane));
    }
  }
  __device__ __forceinline__ void pass_turn(int group) const {
    if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(turn(group));
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return base + T::kBarrierOffset + 8 * index;
  }
};

// All threads of the cluster, when the barriers are initialized.
template <class T>
__device__ __forceinline__ void meet_peers() {
  __syncthreads();
  if constexpr (T::kCluster > 1) cluster_barrier();
}

}  // namespace vitune
