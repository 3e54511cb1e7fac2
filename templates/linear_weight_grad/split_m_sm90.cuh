// templates/linear_weight_grad/split_m_sm90.cuh -- A weight gradient of few tiles on wgmma,
// split-M: a cluster to a tile, a part of the rows of dy and x to each of its CTAs.
//
// As gemm_sm90.cuh, over the CTA's own steps. Then each warp sends the sums of its rows to the CTAs
// that finish them, a slice of the tile's columns each, by stores that their barriers count; there
// the parts are added in the order of their CTAs, so that the same bits come out each time. The
// products need no memory between and no second kernel. The sums of dy's rows are of the first tile
// of a row of tiles, whose first CTA adds them; or all tiles have their share (kSharesRows), as in
// gemm_sm90.cuh, for the second kernel to add.
#pragma once

#include "linear_weight_grad/gemm_sm90.cuh"
#include "linear_weight_grad/geometry_split_m.cuh"
#include "primitives/cluster.cuh"
#include "primitives/shared_pair.cuh"
#include "primitives/store_async.cuh"

namespace vitune {

template <class C>
struct WeightGradSplitMTraits : WeightGradSm90Traits<C> {
  using Base = WeightGradSm90Traits<C>;
  static constexpr WeightGradSplitM kSplit = C::kGeometry;
  static_assert(RulesHold<broken_rule(kSplit, weight_grad_split_m_rules().all)>::kValue);
  static constexpr int kParts = kSplit.row_parts, kWarps = 4 * Base::kGroups;
  static constexpr bool kSharesRows = Base::kBias && kSplit.shares_row_sums != 0;
  static constexpr bool kReusesRing = kSplit.reuses_ring();
  // Groups of eight columns of a slice at most, and a thread's pairs of sums in there.
  static constexpr int kMostChunks = kSplit.most_chunks();
  static constexpr int kPairs = Base::kRowBlocks * 2 * kMostChunks;
  static constexpr int kSumBarrierOffset = kSplit.sum_barrier_offset();
  static constexpr int kSumOffset = kSplit.sum_offset(), kSumBytes = kSplit.sum_bytes();
  static constexpr int kRowSumOffset = kSplit.row_sum_offset();
  static constexpr int kRowSumBytes = kSplit.row_sum_bytes();
};

// The one tile of a cluster, and the part of the rows that is this CTA's.
template <class C>
class WeightGradUnits<WeightGradSplitMTraits<C>> {
  using T = WeightGradSplitMTraits<C>;

 public:
  __device__ __forceinline__ explicit WeightGradUnits(const WeightGradParams& p)
      : part_(int(cluster_rank())),
        across_(ceil_div(p.k, T::kBlockN)),
        steps_(ceil_div(p.m, T::kDepth)) {
    const u32 tile = blockIdx.x / T::kParts;
    m_ = int(tile / u32(across_));
    n_ = int(tile % u32(across_));
  }
  __device__ __forceinline__ bool any() const { return !done_; }
  __device__ __forceinline__ void next() { done_ = true; }
  __device__ __forceinline__ int rank() const { return 0; }  // it shares no copies
  __device__ __forceinline__ int part() const { return part_; }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  // Of this thread's sums the first.
  __device__ __forceinline__ int thread_row() const {
    const int lane = int(threadIdx.x) % kWarpSize, warp = int(threadIdx.x) / kWarpSize;
    return row() + warp / 4 * T::kRowBlocks * 64 + warp % 4 * 16 + lane / 4;
  }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int first_step() const { return int(i64(part_) * steps_ / T::kParts); }
  __device__ __forceinline__ int end_step() const {
    return int(i64(part_ + 1) * steps_ / T::kParts);
  }
  // True if the sums of dy's rows of this step are this tile's to add.
  __device__ __forceinline__ bool has_rows(int step) const {
    return T::kSharesRows ? step % across_ == n_ : n_ == 0;
  }
  // True if all of them are this cluster's, and this CTA's to finish.
  __device__ __forceinline__ bool sends_rows() const {
    return T::kBias && !T::kSharesRows && n_ == 0;
  }
  __device__ __forceinline__ bool finishes_rows() const { return sends_rows() && part_ == 0; }
  // Where shared ones go: a row of sums for each part of each tile of a row of tiles.
  __device__ __forceinline__ int column_part() const { return part_ * across_ + n_; }

 private:
  int part_, across_, steps_, m_, n_;
  bool done_ = false;
};

// The sums of all parts, in the shared memory of the CTA that adds them.
template <class T>
struct WeightGradPartSums {
  u32 base;  // of shared memory

  __device__ __forceinline__ u32 barrier() const { return base + T::kSumBarrierOffset; }
  // When no CTA of the cluster reads its ring any more.
  __device__ __forceinline__ u32 rings_free() const { return barrier() + 8; }
  // The address of this lane's pair `pair` of the sums of this warp's rows by `part`.
  __device__ __forceinline__ u32 place(int part, int pair) const {
    const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
    return base + T::kSumOffset +
           (((part * T::kWarps + warp) * T::kPairs + pair) * kWarpSize + lane) * 8;
  }
  // The same of the sums of dy's rows, of which every fourth lane has two.
  __device__ __forceinline__ u32 row_place(int part, int block) const {
    const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
    return base + T::kRowSumOffset +
           (((part * T::kWarps + warp) * T::kRowBlocks + block) * (kWarpSize / 4) + lane / 4) * 8;
  }
  // By one thread, before any CTA of the cluster sends.
  __device__ __forceinline__ void init(const WeightGradUnits<T>& tile) const {
    const int part = tile.part();
    const int chunks = T::kSplit.first_chunk(part + 1) - T::kSplit.first_chunk(part);
    mbarrier_init(barrier(), 1);
    mbarrier_init(rings_free(), T::kParts * T::kWarps);
    mbarrier_init_fence();
    mbarrier_expect(barrier(), T::kParts * T::kBlockM * chunks * 32 +
                                   (tile.finishes_rows() ? T::kRowSumBytes : 0));
  }
  // Waits until sums may be written in the place of any ring.
  __device__ __forceinline__ void wait_for_rings() const {
    __syncwarp();
    const int lane = int(threadIdx.x) % kWarpSize;
    if (lane < T::kParts) mbarrier_arrive_at_peer(peer_address(rings_free(), lane));
    mbarrier_wait(rings_free(), 0);
  }

  // This warp's sums, to each CTA its slice.
  __device__ __forceinline__ void send(const float (&d)[T::kRowBlocks][T::kBlockN / 2],
                                       int part) const {
#pragma unroll
    for (int to = 0; to < T::kParts; ++to) {
      constexpr const WeightGradSplitM& kSplit = T::kSplit;
      const u32 there = peer_address(barrier(), to);
      const int first = kSplit.first_chunk(to), end = kSplit.first_chunk(to + 1);
#pragma unroll
      for (int pair = 0; pair < T::kPairs; ++pair) {
        const int block = pair / (2 * T::kMostChunks), i = pair % (2 * T::kMostChunks);
        if (first + i / 2 >= end) continue;
        const float* const two = &d[block][4 * first + 2 * i];
        store_async_8(peer_address(place(part, pair), to), __float_as_uint(two[0]),
                      __float_as_uint(two[1]), there);
      }
    }
  }
  // Those of dy's rows, to the first CTA.
  __device__ __forceinline__ void send_rows(const float (&rows)[T::kRowBlocks][4], int part) const {
    if (threadIdx.x % 4 != 0) return;
    const u32 there = peer_address(barrier(), 0);
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
      store_async_8(peer_address(row_place(part, block), 0), __float_as_uint(rows[block][0]),
                    __float_as_uint(rows[block][2]), there);
    }
  }
  // The sum of the parts whose numbers lie at `at` and kStep bytes on.
  template <int kStep>
  static __device__ __forceinline__ float2 add(u32 at) {
    float2 sum = {0.f, 0.f};
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      const uint2 more = load_shared_8(at + part * kStep);
      sum.x += __uint_as_float(more.x);
      sum.y += __uint_as_float(more.y);
    }
    return sum;
  }
};

// What a CTA finishes of a tile, when all parts of it have come.
template <class T>
__device__ __forceinline__ void weight_grad_finish_slice(const WeightGradParams& p,
                                                         const WeightGradUnits<T>& tile,
                                                         const WeightGradPartSums<T>& sums) {
  const int lane = int(threadIdx.x) % kWarpSize, row0 = tile.thread_row();
  const int first = T::kSplit.first_chunk(tile.part());
  const int end = T::kSplit.first_chunk(tile.part() + 1);
  const int column0 = tile.column() + 8 * first + lane % 4 * 2;
#pragma unroll
  for (int pair = 0; pair < T::kPairs; ++pair) {
    const int block = pair / (2 * T::kMostChunks), i = pair % (2 * T::kMostChunks);
    if (first + i / 2 >= end) continue;
    const int row = row0 + block * 64 + i % 2 * 8, column = column0 + i / 2 * 8;
    const float2 sum = sums.template add<T::kSumBytes / T::kParts>(sums.place(0, pair));
    if (row >= p.n || column >= p.k) continue;
    float two[2] = {sum.x, sum.y};
    weight_grad_store<T>(p.dw, p.dw_before, i64(row) * p.k + column, two);
  }
  if (!tile.finishes_rows() || lane % 4 != 0) return;
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
    const float2 sum = sums.template add<T::kRowSumBytes / T::kParts>(sums.row_place(0, block));
    const float both[2] = {sum.x, sum.y};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + block * 64 + half * 8;
      float one[1] = {both[half]};
      if (row < p.n) weight_grad_store<T>(p.db, p.db_before, row, one);
    }
  }
}

// This CTA's share of the sums of dy's rows, for the second kernel.
template <class T>
__device__ __forceinline__ void weight_grad_store_rows(const WeightGradParams& p,
                                                       const WeightGradUnits<T>& tile,
                                                       const float (&rows)[T::kRowBlocks][4]) {
  const int lane = int(threadIdx.x) % kWarpSize, row0 = tile.thread_row();
  if (lane % 4 != 0) return;
#pragma unroll
  for (int i = 0; i < 2 * T::kRowBlocks; ++i) {
    const int row = row0 + i / 2 * 64 + i % 2 * 8;
    if (row < p.n) p.column_sums[i64(tile.column_part()) * p.n + row] = rows[i / 2][2 * (i % 2)];
  }
}

// The products of this CTA's part of the rows, and their way out, by one warpgroup.
template <class T>
__device__ __forceinline__ void weight_grad_consume_part(const WeightGradParams& p,
                                                         const WeightGradRing<T>& ring,
                                                         const WeightGradPartSums<T>& sums) {
  PipelineState<T::kStages> at;
  float d[T::kRowBlocks][T::kBlockN / 2], rows[T::kRowBlocks][4];
  const WeightGradUnits<T> tile(p);
  weight_grad_multiply_unit<T>(d, rows, ring, at, tile);
  if constexpr (T::kReusesRing) sums.wait_for_rings();
  sums.send(d, tile.part());
  if (tile.sends_rows()) sums.send_rows(rows, tile.part());
  if constexpr (T::kSharesRows) weight_grad_store_rows<T>(p, tile, rows);
  mbarrier_wait(sums.barrier(), 0);
  weight_grad_finish_slice<T>(p, tile, sums);
}

template <class Config>
__device__ __forceinline__ void weight_grad_split_m_sm90(const WeightGradParams& p,
                                                         const WeightGradTensorMaps& maps) {
  using T = WeightGradSplitMTraits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const WeightGradRing<T> ring{shared_address(shared_memory)};
  const WeightGradPartSums<T> sums{ring.base};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.dy);
    prefetch_map(maps.x);
  }
  if (threadIdx.x == 0) {
    ring.init();
    sums.init(WeightGradUnits<T>(p));
  }
  if constexpr (T::kBias) ring.write_ones();
  __syncthreads();
  cluster_barrier();  // now every CTA of it has begun, and counts what comes
  wait_for_earlier_grids();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) warpgroup_reg_dealloc<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) weight_grad_produce<T>(p, maps, ring);
  } else {
    if constexpr (T::kTradesRegisters) warpgroup_reg_alloc<T::kComputeRegisters>();
    weight_grad_consume_part<T>(p, ring, sums);
  }
}

}  // namespace vitune
