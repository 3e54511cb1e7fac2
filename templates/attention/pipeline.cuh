// templates/attention/pipeline.cuh -- What copying and computing warps share: tiles, barriers,
// turns.
//
// Each tile has two barriers: `full` ends a phase when its copies are complete, `free` when every
// warp that reads it has. A role goes through the slots of a ring in order and notes its place.
//
// A barrier tells a phase only from the one before. So whoever waits for a phase must know that the
// one before is over: a warpgroup waits for every phase of a slot that it uses, or copies end in
// the order of their start (those of threads do, those of the accelerator do not).
#pragma once

#include "primitives/mbarrier.cuh"
#include "primitives/types.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Arrivals of a warp that is done with something: one for all its lanes. The macro is for
// compute-sanitizer's racecheck, which does not know that __syncwarp() orders the other lanes
// before the arrival of the first.
#ifdef VITUNE_EACH_LANE_ARRIVES
inline constexpr int kWarpArrivals = kWarpSize;
#else
inline constexpr int kWarpArrivals = 1;
#endif

// When all lanes of the warp have done what they had to.
__device__ __forceinline__ void warp_arrive(u32 barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize < kWarpArrivals) mbarrier_arrive(barrier);
}

// A role's place in a ring of kSlots slots.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  u32 parity = 0;  // of the phase that fills the slot now
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Shared memory of a pipelined kernel, as PipelinedTraits counts it.
template <class T>
struct Pipeline {
  u32 shared;

  __device__ __forceinline__ u32 keys(int slot) const { return shared + slot * T::KeyTile::kBytes; }
  __device__ __forceinline__ u32 values(int slot) const {
    return shared + T::kRing * T::KeyTile::kBytes + slot * T::ValueTile::kBytes;
  }
  __device__ __forceinline__ u32 queries(int slot) const {
    return values(T::kRing) + slot * T::QueryTile::kBytes;
  }
  __device__ __forceinline__ u32 spare_weights() const { return shared + T::kSpareOffset; }
  __device__ __forceinline__ u32 spare_queries(int slot) const {
    return spare_weights() + T::SpareWeightTile::kBytes + slot * T::SpareQueryTile::kBytes;
  }
  __device__ __forceinline__ u32 spare_exchange() const { return spare_queries(2); }
  __device__ __forceinline__ u32 bias(int slot) const {
    return shared + T::kBiasOffset + slot * T::BiasTile::kBytes;
  }
  __device__ __forceinline__ u32 staging(int warpgroup) const {
    return shared + T::kBiasOffset + T::kBiasBytes + warpgroup * T::kStagingBytes;
  }
  __device__ __forceinline__ u32 keys_full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 keys_free(int slot) const { return barrier(T::kRing + slot); }
  __device__ __forceinline__ u32 values_full(int slot) const {
    return barrier(2 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 values_free(int slot) const {
    return barrier(3 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 queries_full(int slot) const {
    return barrier(4 * T::kRing + slot);
  }
  __device__ __forceinline__ u32 queries_free(int slot) const {
    return barrier(4 * T::kRing + T::kQuerySlots + slot);
  }
  __device__ __forceinline__ u32 turn(int warpgroup) const {
    return barrier(4 * T::kRing + 2 * T::kQuerySlots + warpgroup);
  }
  __device__ __forceinline__ u32 bias_full(int slot) const { return turn(T::kGroups) + 8 * slot; }
  __device__ __forceinline__ u32 bias_free(int slot) const {
    return bias_full(T::kBiasSlots + slot);
  }

  // By one thread, before any other uses a barrier. `readers` warps read each tile of keys and
  // values.
  __device__ __forceinline__ void init(int readers) const {
    constexpr int kGroupArrivals = 4 * kWarpArrivals;
    for (int slot = 0; slot < T::kRing; ++slot) {
      mbarrier_init(keys_full(slot), T::kCopyThreads);
      mbarrier_init(keys_free(slot), readers * kWarpArrivals);
      mbarrier_init(values_full(slot), T::kCopyThreads);
      mbarrier_init(values_free(slot), readers * kWarpArrivals);
    }
    for (int slot = 0; slot < T::kQuerySlots; ++slot) {
      mbarrier_init(queries_full(slot), T::kCopyThreads);
      mbarrier_init(queries_free(slot), kGroupArrivals);
    }
    for (int slot = 0; slot < T::kBiasSlots; ++slot) {
      mbarrier_init(bias_full(slot), T::kThreadsCopyBias ? T::kBiasThreads : 1);
      mbarrier_init(bias_free(slot), kGroupArrivals);
    }
    for (int i = 0; i < T::kGroups; ++i) mbarrier_init(turn(i), kGroupArrivals);
    for (int i = 0; i < kGroupArrivals; ++i) mbarrier_arrive(turn(0));  // whose turn it is at first
    mbarrier_init_fence();
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return staging(T::kGroups) + 8 * index;
  }
};

// Warpgroups take turns: one issues the product of its queries and keys when the one before it has
// its scores. While it computes weights the next one has the tensor cores, and so on round.
template <class T>
struct Turns {
  u32 mine, next, parity = 0;

  // Of the first `groups` warpgroups.
  __device__ __forceinline__ Turns(const Pipeline<T>& pipe, int warpgroup, int groups)
      : mine(pipe.turn(warpgroup)), next(pipe.turn(warpgroup + 1 == groups ? 0 : warpgroup + 1)) {}
  __device__ __forceinline__ void take() {
    if constexpr (T::kTakesTurns) {
      mbarrier_wait(mine, parity);
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (T::kTakesTurns) warp_arrive(next);
  }
};

}  // namespace vitune
