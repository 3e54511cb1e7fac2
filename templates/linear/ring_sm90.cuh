// templates/linear/ring_sm90.cuh -- The shared memory of a kernel of the family sm90: slots, their
// barriers, places.
//
// Slots of x and w pass from the producer to the consumers (collective/pipeline.cuh). A slot is
// full when all of its bytes have come, from both CTAs of a pair, and empty when every warp of both
// CTAs has read it. Both CTAs take the same slots in the same order, so that the copies of one into
// the other find their slot empty there too. Warpgroups that share tiles wait for every phase; in
// ping-pong one passes when the one before it has waited for all of its own.
#pragma once

#include "collective/pipeline.cuh"
#include "linear/config_sm90.cuh"
#include "primitives/cluster.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <class T>
struct LinearShared {
  u32 base;

  __device__ __forceinline__ u32 x(int slot) const { return base + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 w(int slot) const { return x(slot) + T::kXBytes; }
  __device__ __forceinline__ u32 staging(int warp) const {
    return base + T::kStagingOffset + warp * T::kStagingBytes;
  }
  // The staging of the second result.
  __device__ __forceinline__ u32 second_staging(int warp) const {
    return base + T::kSecondOffset + warp * T::kSecondBytes;
  }
  __device__ __forceinline__ u32 columns(int group) const {
    return base + T::kColumnOffset + group * T::kColumnBytes;
  }
  __device__ __forceinline__ u32 full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 empty(int slot) const { return barrier(T::kStages + slot); }
  // Shared tiles: when the warpgroup before this one is kLead steps in. In ping-pong: when this
  // warpgroup may multiply.
  __device__ __forceinline__ u32 order(int group) const { return barrier(2 * T::kStages + group); }
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
    for (int group = 0; group < T::kGroups; ++group) mbarrier_init(order(group), 4);
    for (int slot = 0; slot < T::kMerged; ++slot) {
      mbarrier_init(merged_full(slot), 3);  // the warps beside the copying one
      mbarrier_init(merged_empty(slot), kTileWarps);
    }
    for (int i = 0; i < T::kResidualBarriers; ++i) mbarrier_init(residual(0, i), 1);
    if constexpr (T::kPingPong) {
      for (int i = 0; i < 4; ++i) mbarrier_arrive(order(0));  // the first to pass
    }
    mbarrier_init_fence();
  }

  __device__ __forceinline__ void wait_for_empty(const PipelineState<T::kStages>& at) const {
    mbarrier_wait(empty(at.index), at.phase ^ 1);
  }

  // When all lanes of this warp have read the slot.
  __device__ __forceinline__ void give_back(int slot) const {
    release_tile<T::kCluster>(empty(slot));
  }
  __device__ __forceinline__ void let_pass(int group) const {
    if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(order(group));
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
