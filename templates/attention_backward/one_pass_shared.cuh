// templates/attention_backward/one_pass_shared.cuh -- The shared memory of the family
// sm90_one_pass, and its barriers (collective/pipeline.cuh).
//
// Three rings. Blocks of keys: K and V. Steps: Q and dO, in a head's first block of keys O too.
// Gradients of scores: two tiles, which the warpgroups with keys write and that of dQ reads. Beside
// these, the log-sum-exp and delta of each of the head's queries, in the order in which threads
// read four of them at once: of sixteen queries the log-sum-exps, then the deltas.
//
// A head's numbers are written over those of the head before without a barrier of their own: a
// step's come after its tiles, and these after every warp has released a tile of as many steps
// before as there are stages, which a head has at least.
#pragma once

#include "attention_backward/config_sm90_one_pass.cuh"
#include "collective/pipeline.cuh"
#include "primitives/copy.cuh"
#include "primitives/mbarrier.cuh"

namespace vitune {

template <class T>
struct OnePassShared {
  static constexpr int kWarps = 4 * T::kGroups;  // with keys
  static constexpr int kDqWarps = 4, kDeltaWarps = 3;
  u32 base;

  __device__ __forceinline__ u32 keys(int slot) const {
    return base + 2 * slot * T::RowTile::kBytes;
  }
  __device__ __forceinline__ u32 values(int slot) const { return keys(slot) + T::RowTile::kBytes; }
  __device__ __forceinline__ u32 gradients(int slot) const {
    return base + T::kGradientsOffset + slot * T::GradientTile::kBytes;
  }
  __device__ __forceinline__ u32 queries(int slot) const {
    return base + T::kRingOffset + 3 * slot * T::StepTile::kBytes;
  }
  __device__ __forceinline__ u32 dout(int slot) const {
    return queries(slot) + T::StepTile::kBytes;
  }
  __device__ __forceinline__ u32 out(int slot) const { return dout(slot) + T::StepTile::kBytes; }
  // This warp's 16 rows of staging.
  __device__ __forceinline__ u32 staging() const {
    return base + T::kStagingOffset + threadIdx.x / kWarpSize * 16 * T::kStagingPitch;
  }
  // This warp's part of dQ on its way out.
  __device__ __forceinline__ u32 dq_staging() const {
    return base + T::kDqStagingOffset + threadIdx.x / kWarpSize % 4 * T::kDqStagingBytes;
  }
  // The numbers of the sixteen queries from query0 on.
  __device__ __forceinline__ u32 stats(int query0) const {
    return base + T::kStatsOffset + 8 * query0;
  }

  __device__ __forceinline__ u32 keys_full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 keys_empty(int slot) const {
    return barrier(T::kKeyStages + slot);
  }
  __device__ __forceinline__ u32 full(int slot) const { return barrier(kSteps + slot); }
  __device__ __forceinline__ u32 empty(int slot) const {
    return barrier(kSteps + T::kStages + slot);
  }
  // The numbers of the step's queries are there.
  __device__ __forceinline__ u32 weighed(int slot) const {
    return barrier(kSteps + 2 * T::kStages + slot);
  }
  __device__ __forceinline__ u32 gradients_full(int slot) const {
    return barrier(kSteps + 3 * T::kStages + slot);
  }
  __device__ __forceinline__ u32 gradients_empty(int slot) const {
    return barrier(kSteps + 3 * T::kStages + 2 + slot);
  }
  // By one thread, before any other uses a barrier.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < T::kKeyStages; ++slot) {
      mbarrier_init(keys_full(slot), 1);
      mbarrier_init(keys_empty(slot), kWarps + kDqWarps);
    }
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(full(slot), 1);
      mbarrier_init(empty(slot), kWarps + kDeltaWarps);
      mbarrier_init(weighed(slot), kDeltaWarps);
    }
    for (int slot = 0; slot < 2; ++slot) {
      mbarrier_init(gradients_full(slot), kWarps);
      mbarrier_init(gradients_empty(slot), kDqWarps);
    }
    mbarrier_init_fence();
  }

 private:
  static constexpr int kSteps = 2 * T::kKeyStages;  // the first barrier of the ring of steps
  __device__ __forceinline__ u32 barrier(int index) const {
    return base + T::kBarrierOffset + 8 * index;
  }
};

// A warpgroup's way through the blocks of keys of all heads of the CTA.
template <class T, class Group>
__device__ __forceinline__ void one_pass_blocks(const AttentionBackwardParams& p,
                                                const OnePassShared<T>& shared, int heads) {
  Group group{p, shared};
#pragma unroll 1
  for (int index = blockIdx.x; index < heads; index += gridDim.x) {
    const int batch = int(u32(index) / u32(p.call.heads)), head = index - batch * p.call.heads;
#pragma unroll 1
    for (int block = 0; block < recomputed(T::kBlocks); ++block) group.block(block, batch, head);
  }
}

}  // namespace vitune
