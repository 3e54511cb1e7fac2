// templates/linear_weight_grad/split_m_sm90.cuh -- A weight gradient of few tiles on wgmma,
// split-M: a cluster to a tile, a part of the rows of dy and x to each of its CTAs.
//
// As gemm_sm90.cuh, over the CTA's own steps. Then each warp sends the sums of its rows to the CTAs
// that finish them, a slice of the tile's columns each, by stores that their barriers count; there
// the parts are added in the order of their CTAs, so that the same bits come out each time. The
// sums of dy's rows are of the first tile of a row of tiles; its first CTA adds them. A second
// kernel and memory between are not needed.
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
  // Groups of eight columns of a slice, and a thread's pairs of sums in there.
  static constexpr int kChunks = kSplit.slice_columns() / 8;
  static constexpr int kPairs = Base::kRowBlocks * 2 * kChunks;
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
      : part_(int(cluster_rank())), steps_(ceil_div(p.m, T::kDepth)) {
    const u32 across = ceil_div(p.k, T::kBlockN), tile = blockIdx.x / T::kParts;
    m_ = int(tile / across);
    n_ = int(tile % across);
  }
  __device__ __forceinline__ bool any() const { return !done_; }
  __device__ __forceinline__ void next() { done_ = true; }
  __device__ __forceinline__ int rank() const { return 0; }  // it shares no copies
  __device__ __forceinline__ int part() const { return part_; }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int first_step() const { return int(i64(part_) * steps_ / T::kParts); }
  __device__ __forceinline__ int end_step() const {
    return int(i64(part_ + 1) * steps_ / T::kParts);
  }
  // True if the sums of dy's rows are this tile's to add.
  __device__ __forceinline__ bool has_rows(int) const { return n_ == 0; }
  // True if they are this CTA's to finish.
  __device__ __forceinline__ bool finishes_rows() const {
    return T::kBias && n_ == 0 && part_ == 0;
  }

 private:
  int part_, steps_, m_, n_;
  bool done_ = false;
};

// The sums of all parts, in the shared memory of the CTA that adds them.
template <class T>
struct WeightGradPartSums {
  u32 base;  // of shared memory

  __device__ __forceinline__ u32 barrier() const { return base + T::kSumBarrierOffset; }
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
  __device__ __forceinline__ void init(bool finishes_rows) const {
    mbarrier_init(barrier(), 1);
    mbarrier_init_fence();
    mbarrier_expect(barrier(), T::kSumBytes + (finishes_rows ? T::kRowSumBytes : 0));
  }

  // This warp's sums, to each CTA its slice.
  __device__ __forceinline__ void send(const float (&d)[T::kRowBlocks][T::kBlockN / 2],
                                       int part) const {
#pragma unroll
    for (int to = 0; to < T::kParts; ++to) {
      const u32 there = peer_address(barrier(), to);
#pragma unroll
      for (int pair = 0; pair < T::kPairs; ++pair) {
        const int block = pair / (2 * T::kChunks), i = pair % (2 * T::kChunks);
        const float* const two = &d[block][4 * to * T::kChunks + 2 * i];
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
  const int lane = int(threadIdx.x) % kWarpSize, warp = int(threadIdx.x) / kWarpSize;
  const int row0 = tile.row() + warp / 4 * T::kRowBlocks * 64 + warp % 4 * 16 + lane / 4;
  const int column0 = tile.column() + 8 * tile.part() * T::kChunks + lane % 4 * 2;
#pragma unroll
  for (int pair = 0; pair < T::kPairs; ++pair) {
    const int block = pair / (2 * T::kChunks), i = pair % (2 * T::kChunks);
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

// The products of this CTA's part of the rows, and their way out, by one warpgroup.
template <class T>
__device__ __forceinline__ void weight_grad_consume_part(const WeightGradParams& p,
                                                         const WeightGradRing<T>& ring,
                                                         const WeightGradPartSums<T>& sums) {
  PipelineState<T::kStages> at;
  float d[T::kRowBlocks][T::kBlockN / 2], rows[T::kRowBlocks][4];
  const WeightGradUnits<T> tile(p);
  weight_grad_multiply_unit<T>(d, rows, ring, at, tile);
  sums.send(d, tile.part());
  if (T::kBias && tile.has_rows(0)) sums.send_rows(rows, tile.part());
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
    sums.init(WeightGradUnits<T>(p).finishes_rows());
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
