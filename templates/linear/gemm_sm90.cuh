// templates/linear/gemm_sm90.cuh -- A linear layer on wgmma, by persistent CTAs or pairs of them.
//
// x [m, k] and w, [n, k] or [k, n], pass through a ring of slots of 64 of k, copied by one thread;
// kGroups warpgroups compute. Two CTAs of a cluster work on neighbouring tiles and each copies half
// of the operand that they share into both. Epilogues run beside products:
//   shared tiles  a warpgroup begins a tile kLead steps before the next one does. While it is in
//                 its epilogue, the others have the tensor cores; the ring bounds how far they get.
//   ping-pong     a warpgroup's epilogue runs beside the products of the other's tile.
#pragma once

#include "collective/smem_tile.cuh"
#include "collective/tma_tile.cuh"
#include "linear/epilogue_sm90.cuh"
#include "primitives/sync.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/tile_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Copies this CTA's part of step `step`: all of one operand, and of the other, which a pair shares,
// its half into both.
template <class T>
__device__ __forceinline__ void copy_step(const LinearTensorMaps& maps,
                                          const LinearShared<T>& shared, const TileOrder<T>& tile,
                                          int step, int slot) {
  const u32 full = shared.full(slot), x = shared.x(slot), w = shared.w(slot);
  const int k = step * kBlockK;
  const auto copy_w = [&] {
    if constexpr (T::kTransposed) {
      tma_load_atoms<T::kBlockN / 64, T::kWAtomBytes, T::kPair == 2>(
          w, maps.w, full, tile.column(), k, T::kPair == 2 ? tile.rank() * T::kWBoxRows : 0);
    } else if constexpr (T::kPair == 2) {
      const int half = tile.rank() * T::kWBoxRows;
      copy_tile_to_ranks(w + half * kBlockK * 2, maps.w, full, k, tile.column() + half, 3);
    } else {
      copy_tile(w, maps.w, full, k, tile.column());
    }
  };
  if constexpr (T::kPair == 1) {
    const int half = tile.rank() * T::kXBoxRows;
    copy_w();
    copy_tile_to_ranks(x + half * kBlockK * 2, maps.x, full, k, tile.row() + half, 3);
  } else {
    copy_tile(x, maps.x, full, k, tile.row());
    copy_w();
  }
}

// All copies to the ring, by one thread.
template <class T>
__device__ __forceinline__ void produce(const LinearParams& p, const typename T::Maps& maps,
                                        const LinearShared<T>& shared) {
  PipelineState<T::kStages> at;
#pragma unroll 1
  for (TileOrder<T> tile(p, 0, 1); tile.any(); tile.next()) {
    const int first = tile.first_step(), end = first + tile.steps();
#pragma unroll 1
    for (int step = first; step < end; ++step, at.advance()) {
      shared.wait_for_empty(at);
      if (T::kRingResidual) fence_proxy_async();  // a residual may have been read from the slot
      mbarrier_expect(shared.full(at.index), T::kStageBytes);
      copy_step(maps, shared, tile, step, at.index);
    }
#pragma unroll 1
    for (int store = 0; T::kRingResidual && store < T::kStoreTiles;
         store += T::kSlotStoreTiles, at.advance()) {
      const int stores = min(T::kSlotStoreTiles, T::kStoreTiles - store);
      const u32 full = shared.full(at.index);
      shared.wait_for_empty(at);
      fence_proxy_async();
      mbarrier_expect(full, stores * T::kStoreTileBytes);
#pragma unroll 1
      for (int i = 0; i < stores; ++i) {
        copy_tile(shared.x(at.index) + i * T::kStoreTileBytes, maps.residual, full,
                  (tile.column() + (store + i) * T::kStoreColumns) * T::kUnits, tile.row());
      }
    }
  }
  // A CTA stays until the last arrival of its peer has come.
#pragma unroll 1
  for (int i = 0; T::kCluster > 1 && i < T::kStages; ++i, at.advance()) shared.wait_for_empty(at);
}

// Issues the products of a step, as a group.
template <class T>
__device__ __forceinline__ void multiply(float (&d)[T::kRowBlocks][T::kBlockN / 2],
                                         const LinearShared<T>& shared, int slot, bool accumulate) {
  const int row = T::kPingPong ? 0 : int(threadIdx.x) / kGroupThreads * T::kGroupRows;
  const u64 x = descriptor_k_major<128>(shared.x(slot) + row * kBlockK * 2);
  const u64 w = T::kTransposed ? descriptor_mn_major<128>(shared.w(slot), T::kWAtomBytes)
                               : descriptor_k_major<128>(shared.w(slot));
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kBlockK / 16; ++i) {
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
      const u64 rows = descriptor_at(x, 32 * i + block * 64 * kBlockK * 2);
      const bool adds = accumulate || i > 0;
      Wgmma<T::kElement, T::kBlockN>::template shared_a<false, T::kTransposed>(
          d[block], rows, descriptor_at(w, T::kTransposed ? 16 * 128 * i : 32 * i), adds);
    }
  }
  wgmma_commit();
}

// The products of a tile and its epilogue, tile after tile, by one warpgroup.
template <class T>
__device__ __forceinline__ void consume(const LinearParams& p, const typename T::Maps& maps,
                                        const LinearShared<T>& shared) {
  constexpr int kSums = T::kBlockN / 2;
  const int group = int(threadIdx.x) / kGroupThreads;
  LinearEpilogue<T> epilogue(p, maps, shared);
  PipelineState<T::kStages> at;
  u32 order_phase = 0;
  TileOrder<T> tile(p, T::kPingPong ? group : 0, T::kPingPong ? T::kGroups : 1);
  if constexpr (T::kPingPong) at.skip(group * tile.steps());
  float d[T::kRowBlocks][kSums];
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) d[block][i] = 0.f;
  }
#pragma unroll 1
  for (; tile.any(); tile.next()) {
    const int steps = tile.steps();
    // A warpgroup that leads by more than the ring is long would be two phases ahead.
    const int lead = T::kG.lead > 0 && steps >= T::kStages ? T::kG.lead : 0;
    epilogue.begin(tile.row(), tile.column());
    if constexpr (T::kStagedResidual) epilogue.ask_for_residuals(tile.row(), tile.column());
    if (T::kPingPong || (T::kG.lead > 0 && lead > 0 && group > 0)) {
      mbarrier_wait(shared.order(group), order_phase);
      order_phase ^= 1;
    }
    int before = 0;  // the slot of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(shared.full(at.index), at.phase);
      multiply(d, shared, at.index, step > 0);
      wgmma_wait<1>();
      if (step > 0) shared.give_back(before);
      if (T::kG.lead > 0 && lead > 0 && step == lead && group + 1 < T::kGroups) {
        shared.let_pass(group + 1);
      }
      before = at.index;
      at.advance();
    }
    if constexpr (T::kPingPong) shared.let_pass(group + 1 == T::kGroups ? 0 : group + 1);
    wgmma_wait<0>();
    shared.give_back(before);
    epilogue.columns_ready();
    epilogue.run(d, tile.row(), tile.column(), at);
    if constexpr (T::kPingPong) at.skip((T::kGroups - 1) * steps);
  }
  if (!T::kRowMap && threadIdx.x % kWarpSize == 0) store_wait_read<0>();
}

template <class Config>
__device__ __forceinline__ void linear_gemm_sm90(const LinearParams& p,
                                                 const typename LinearTraits<Config>::Maps& maps) {
  using T = LinearTraits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const LinearShared<T> shared{shared_address(shared_memory)};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.x);
    prefetch_map(maps.w);
    if constexpr (!T::kRowMap) prefetch_map(maps.out);
    if constexpr (T::kCopiedResidual) prefetch_map(maps.residual);
    if constexpr (T::kTwoResults) prefetch_map(maps.aux);
  }
  if (threadIdx.x == 0) shared.init();
  meet_peers<T>();
  wait_for_earlier_grids();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) produce(p, maps, shared);
    if constexpr (T::kMomentsGiven > 0) merge_moments(p, shared);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    consume(p, maps, shared);
  }
}

}  // namespace vitune
