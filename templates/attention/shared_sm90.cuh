// templates/attention/shared_sm90.cuh -- The shared memory of a kernel with producer warps: tiles
// and their barriers (collective/pipeline.cuh).
#pragma once

#include "collective/pipeline.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Arrivals of a warp: one lane arrives for all of them. The macro is for compute-sanitizer's
// racecheck, which does not know that __syncwarp() orders the other lanes before that arrival.
#ifdef VITUNE_EACH_LANE_ARRIVES
inline constexpr int kWarpArrivals = kWarpSize;
#else
inline constexpr int kWarpArrivals = 1;
#endif

// Arrives for this warp when all of its lanes have come here.
__device__ __forceinline__ void warp_arrive(u32 barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize < kWarpArrivals) mbarrier_arrive(barrier);
}

template <class T>
using KeyState = PipelineState<T::kRing>;  // and of values
template <class T>
using QueryState = PipelineState<T::kQuerySlots>;

// In the order in which PipelinedTraits counts it.
template <class T>
struct PipelinedShared {
  u32 base;

  __device__ __forceinline__ u32 keys(int slot) const { return base + slot * T::KeyTile::kBytes; }
  __device__ __forceinline__ u32 values(int slot) const {
    return base + T::kRing * T::KeyTile::kBytes + slot * T::ValueTile::kBytes;
  }
  __device__ __forceinline__ u32 queries(int slot) const {
    return values(T::kRing) + slot * T::QueryTile::kBytes;
  }
  __device__ __forceinline__ u32 tail_weights() const { return base + T::kSwapAbOffset; }
  __device__ __forceinline__ u32 tail_queries(int slot) const {
    return tail_weights() + T::SwapAbWeightTile::kBytes + slot * T::SwapAbQueryTile::kBytes;
  }
  __device__ __forceinline__ u32 tail_exchange() const { return tail_queries(2); }
  __device__ __forceinline__ u32 bias(int slot) const {
    return base + T::kBiasOffset + slot * T::BiasTile::kBytes;
  }
  __device__ __forceinline__ u32 staging(int warpgroup) const {
    return base + T::kBiasOffset + T::kBiasBytes + warpgroup * T::kStagingBytes;
  }
  __device__ __forceinline__ u32 keys_full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 keys_empty(int slot) const { return barrier(T::kRing + slot); }
  __device__ __forceinline__ u32 values_full(int slot) const {
    return barrier(2 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 values_empty(int slot) const {
    return barrier(3 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 queries_full(int slot) const {
    return barrier(4 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 queries_empty(int slot) const {
    return barrier(4 * T::kRing + T::kQuerySlots + slot);
  }
  __device__ __forceinline__ u32 order(int warpgroup) const {
    return barrier(4 * T::kRing + 2 * T::kQuerySlots + warpgroup);
  }
  __device__ __forceinline__ u32 bias_full(int slot) const { return order(T::kGroups) + 8 * slot; }
  __device__ __forceinline__ u32 bias_empty(int slot) const {
    return bias_full(T::kBiasSlots + slot);
  }

  // By one thread, before any other uses a barrier. `readers` warps read each tile of keys and
  // values.
  __device__ __forceinline__ void init(int readers) const {
    constexpr int kGroupArrivals = 4 * kWarpArrivals;
    for (int slot = 0; slot < T::kRing; ++slot) {
      mbarrier_init(keys_full(slot), T::kCopyThreads);
      mbarrier_init(keys_empty(slot), readers * kWarpArrivals);
      mbarrier_init(values_full(slot), T::kCopyThreads);
      mbarrier_init(values_empty(slot), readers * kWarpArrivals);
    }
    for (int slot = 0; slot < T::kQuerySlots; ++slot) {
      mbarrier_init(queries_full(slot), T::kCopyThreads);
      mbarrier_init(queries_empty(slot), kGroupArrivals);
    }
    for (int slot = 0; slot < T::kBiasSlots; ++slot) {
      mbarrier_init(bias_full(slot), T::kThreadsCopyBias ? T::kBiasThreads : 1);
      mbarrier_init(bias_empty(slot), kGroupArrivals);
    }
    for (int i = 0; i < T::kGroups; ++i) mbarrier_init(order(i), kGroupArrivals);
    for (int i = 0; i < kGroupArrivals; ++i) mbarrier_arrive(order(0));  // the first to pass
    mbarrier_init_fence();
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return staging(T::kGroups) + 8 * index;
  }
};

// Consumer warpgroups issue Q K' one after the other (ping-pong): the next one may when the one
// before it has its scores, so that the tensor cores work for one while others compute
// exponentials.
template <class T>
struct OrderedBarrier {
  u32 own, next, phase = 0;

  // The first `groups` warpgroups take part.
  __device__ __forceinline__ OrderedBarrier(const PipelinedShared<T>& shared, int warpgroup,
                                            int groups)
      : own(shared.order(warpgroup)),
        next(shared.order(warpgroup + 1 == groups ? 0 : warpgroup + 1)) {}
  __device__ __forceinline__ void wait() {
    if constexpr (T::kPingPong) {
      mbarrier_wait(own, phase);
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void arrive() const {
    if constexpr (T::kPingPong) warp_arrive(next);
  }
};

}  // namespace vitune
