// templates/linear_weight_grad/gemm_sm90.cuh -- dy' x on wgmma, by persistent CTAs or pairs of
// them.
//
// Rows of dy [m, n] and x [m, k] pass through a ring of slots of 64 of them, copied by one thread
// in boxes of 64 columns; kGroups warpgroups multiply, the depth of both operands across their
// rows. A unit of work is a tile of dw and a part of the rows. Two CTAs of a cluster work on
// neighbouring tiles and each copies half of the rows of the operand that they share into both.
// The sums of dy's rows, db, are products with a tile of ones: all tiles of a row of tiles have the
// same columns of dy, so each takes the steps that are its share, and none waits for the others.
#pragma once

#include "collective/smem_tile.cuh"
#include "collective/tma_tile.cuh"
#include "linear_weight_grad/config_sm90.cuh"
#include "linear_weight_grad/store.cuh"
#include "primitives/hold.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/tile_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// The units of a cluster: every so-manieth. Those of a part of the rows follow each other, so that
// CTAs running side by side share rows in L2. The second tile of the last pair may lie outside of
// dw: it is computed from zeros and not written.
template <class T>
class WeightGradUnits {
 public:
  __device__ __forceinline__ explicit WeightGradUnits(const WeightGradParams& p)
      : rank_(T::kCluster == 1 ? 0 : int(cluster_rank())),
        across_(ceil_div(p.k, T::kBlockN)),
        steps_(ceil_div(p.m, T::kDepth)),
        splits_(p.splits),
        index_(int(blockIdx.x) / T::kCluster) {
    const int down = ceil_div(p.n, T::kBlockM);
    row_units_ = T::kPair == 1 ? ceil_div(across_, 2) : across_;
    part_units_ = row_units_ * (T::kPair == 2 ? ceil_div(down, 2) : down);
    place();
  }
  __device__ __forceinline__ bool any() const { return split_ < splits_; }
  __device__ __forceinline__ void next() {
    index_ += int(gridDim.x) / T::kCluster;
    place();
  }
  __device__ __forceinline__ int rank() const { return rank_; }
  __device__ __forceinline__ int split() const { return split_; }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int first_step() const { return int(i64(split_) * steps_ / splits_); }
  __device__ __forceinline__ int end_step() const {
    return int(i64(split_ + 1) * steps_ / splits_);
  }
  // True if the sums of dy's rows of this step are this tile's to add.
  __device__ __forceinline__ bool has_rows(int step) const { return step % across_ == n_; }
  // Where they go: the parts of each tile of a row of tiles, none for a tile that lies outside.
  __device__ __forceinline__ int column_part() const { return split_ * across_ + n_; }
  __device__ __forceinline__ bool is_inside() const { return n_ < across_; }

 private:
  __device__ __forceinline__ void place() {
    split_ = int(u32(index_) / u32(part_units_));
    const int unit = index_ - split_ * part_units_;
    const int m = int(u32(unit) / u32(row_units_)), n = unit - m * row_units_;
    m_ = T::kPair == 2 ? m * 2 + rank_ : m;
    n_ = T::kPair == 1 ? n * 2 + rank_ : n;
  }

  int rank_, across_, steps_, splits_, index_;
  int row_units_, part_units_;  // of a row of tiles; of all tiles
  int split_, m_, n_;
};

// Slots and their barriers, as in linear/ring_sm90.cuh.
template <class T>
struct WeightGradRing {
  u32 base;

  __device__ __forceinline__ u32 dy(int slot) const { return base + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 x(int slot) const { return dy(slot) + T::kDyBytes; }
  __device__ __forceinline__ u32 ones() const { return base + T::kOnesOffset; }
  __device__ __forceinline__ u32 full(int slot) const {
    return base + T::kBarrierOffset + 8 * slot;
  }
  __device__ __forceinline__ u32 empty(int slot) const { return full(T::kStages + slot); }

  // By one thread, before any other of the cluster uses a barrier.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(full(slot), 1);
      mbarrier_init(empty(slot), 4 * T::kGroups * T::kCluster);
    }
    mbarrier_init_fence();
  }
  // By the first threads of the CTA; a barrier follows.
  __device__ __forceinline__ void write_ones() const {
    constexpr u32 kOnes = T::kElement == 1 ? 0x3f803f80u : 0x3c003c00u;
    const int words = T::kOnesBytes / 4;
    for (int i = int(threadIdx.x); i < words; i += T::kThreads) store_shared(ones() + 4 * i, kOnes);
    fence_proxy_async();
  }
  __device__ __forceinline__ void wait_for_empty(const PipelineState<T::kStages>& at) const {
    mbarrier_wait(empty(at.index), at.phase ^ 1);
  }
  // When all lanes of this warp have read the slot.
  __device__ __forceinline__ void give_back(int slot) const {
    release_tile<T::kCluster>(empty(slot));
  }
};

// All copies to the ring, by one thread.
template <class T>
__device__ __forceinline__ void weight_grad_produce(const WeightGradParams& p,
                                                    const WeightGradTensorMaps& maps,
                                                    const WeightGradRing<T>& ring) {
  PipelineState<T::kStages> at;
#pragma unroll 1
  for (WeightGradUnits<T> unit(p); unit.any(); unit.next()) {
    const int end = unit.end_step();
#pragma unroll 1
    for (int step = unit.first_step(); step < end; ++step, at.advance()) {
      const u32 full = ring.full(at.index);
      ring.wait_for_empty(at);
      mbarrier_expect(full, T::kStageBytes);
      const int row = step * T::kDepth, half = unit.rank() * (T::kDepth / 2);
      tma_load_atoms<T::kBlockM / 64, T::kAtomBytes, T::kPair == 1>(
          ring.dy(at.index), maps.dy, full, unit.row(), row, T::kPair == 1 ? half : 0);
      tma_load_atoms<T::kBlockN / 64, T::kAtomBytes, T::kPair == 2>(
          ring.x(at.index), maps.x, full, unit.column(), row, T::kPair == 2 ? half : 0);
    }
  }
  // A CTA stays until the last arrival of its peer has come.
#pragma unroll 1
  for (int i = 0; T::kCluster > 1 && i < T::kStages; ++i, at.advance()) ring.wait_for_empty(at);
}

// Issues the products of a step, as a group; with `has_rows` those with ones before them, as a
// group of their own: in one whose products are behind a branch ptxas 13.0 puts waits between them
// (C7520).
template <class T>
__device__ __forceinline__ void weight_grad_multiply(float (&d)[T::kRowBlocks][T::kBlockN / 2],
                                                     float (&rows)[T::kRowBlocks][4],
                                                     const WeightGradRing<T>& ring, int slot,
                                                     bool has_rows) {
  constexpr int kStepBytes = 16 * 128;  // sixteen rows of an atom column
  const int atom = int(threadIdx.x) / kGroupThreads * T::kRowBlocks;
  const u64 dy = descriptor_mn_major<128>(ring.dy(slot) + atom * T::kAtomBytes, T::kAtomBytes);
  const u64 x = descriptor_mn_major<128>(ring.x(slot), T::kAtomBytes);
  if (T::kBias && has_rows) {
    const u64 ones = descriptor_k_major<128>(ring.ones());
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::kDepth / 16; ++i) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
        Wgmma<T::kElement, 8>::shared_a_across(
            rows[block], descriptor_at(dy, kStepBytes * i + block * T::kAtomBytes), ones, true);
      }
    }
    wgmma_commit();
  }
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < T::kDepth / 16; ++i) {
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
      Wgmma<T::kElement, T::kBlockN>::template shared_a<true, true>(
          d[block], descriptor_at(dy, kStepBytes * i + block * T::kAtomBytes),
          descriptor_at(x, kStepBytes * i), true);
    }
  }
  wgmma_commit();
}

// A warpgroup's part of a unit: its tile's rows go from registers to memory.
template <class T>
__device__ __forceinline__ void weight_grad_store_tile(
    const WeightGradParams& p, const WeightGradUnits<T>& unit,
    const float (&d)[T::kRowBlocks][T::kBlockN / 2], const float (&rows)[T::kRowBlocks][4]) {
  const int lane = int(threadIdx.x) % kWarpSize, warp = int(threadIdx.x) / kWarpSize;
  const int first = unit.row() + warp / 4 * T::kRowBlocks * 64 + warp % 4 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 2 * T::kRowBlocks; ++i) {
    const int block = i / 2, half = i % 2, row = first + block * 64 + half * 8;
    if (row >= p.n) continue;
    if (T::kBias && lane % 4 == 0 && unit.is_inside()) {
      p.column_sums[i64(unit.column_part()) * p.n + row] = rows[block][2 * half];
    }
#pragma unroll
    for (int chunk = 0; chunk < T::kBlockN / 8; ++chunk) {
      const int column = unit.column() + 8 * chunk + lane % 4 * 2;
      if (column >= p.k) continue;
      float two[2] = {d[block][4 * chunk + 2 * half], d[block][4 * chunk + 2 * half + 1]};
      weight_grad_put<T>(p, unit.split(), row, column, two);
    }
  }
}

// The products of a unit, from zero, and the sums of the rows of dy that are its own; by one
// warpgroup.
template <class T>
__device__ __forceinline__ void weight_grad_multiply_unit(float (&d)[T::kRowBlocks][T::kBlockN / 2],
                                                          float (&rows)[T::kRowBlocks][4],
                                                          const WeightGradRing<T>& ring,
                                                          PipelineState<T::kStages>& at,
                                                          const WeightGradUnits<T>& unit) {
  // The sums that the first step adds to, and those of a split without a step.
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < T::kBlockN / 2; ++i) d[block][i] = 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[block][i] = 0.f;
  }
  const int first = unit.first_step(), end = unit.end_step();
  int before = 0;  // the slot of the step before
#pragma unroll 1
  for (int step = first; step < end; ++step) {
    mbarrier_wait(ring.full(at.index), at.phase);
    weight_grad_multiply<T>(d, rows, ring, at.index, unit.has_rows(step));
    wgmma_wait<1>();
    if (step > first) ring.give_back(before);
    before = at.index;
    at.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < T::kBlockN / 2; ++i) hold(d[block][i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) hold(rows[block][i]);
  }
  if (end > first) ring.give_back(before);
}

// The products of a unit and their way out, unit after unit, by one warpgroup.
template <class T>
__device__ __forceinline__ void weight_grad_consume(const WeightGradParams& p,
                                                    const WeightGradRing<T>& ring) {
  PipelineState<T::kStages> at;
  float d[T::kRowBlocks][T::kBlockN / 2], rows[T::kRowBlocks][4];
#pragma unroll 1
  for (WeightGradUnits<T> unit(p); unit.any(); unit.next()) {
    weight_grad_multiply_unit<T>(d, rows, ring, at, unit);
    weight_grad_store_tile<T>(p, unit, d, rows);
  }
}

template <class Config>
__device__ __forceinline__ void weight_grad_gemm_sm90(const WeightGradParams& p,
                                                      const WeightGradTensorMaps& maps) {
  using T = WeightGradSm90Traits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const WeightGradRing<T> ring{shared_address(shared_memory)};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.dy);
    prefetch_map(maps.x);
  }
  if (threadIdx.x == 0) ring.init();
  if constexpr (T::kBias) ring.write_ones();
  meet_peers<T>();
  wait_for_earlier_grids();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) weight_grad_produce<T>(p, maps, ring);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    weight_grad_consume<T>(p, ring);
  }
}

}  // namespace vitune
