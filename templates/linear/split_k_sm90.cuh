// templates/linear/split_k_sm90.cuh -- A linear layer of few tiles on wgmma, split-K: a cluster to
// a tile, a part of k to each of its CTAs.
//
// As gemm_sm90.cuh with one warpgroup, over the CTA's own steps. Then each warp sends the sums of
// its 16 rows to the CTA that finishes these rows, by stores that its barrier counts; there the
// parts are added in the order of their CTAs, so that the same bits come out each time, and go
// through the epilogue. A second kernel and memory between are not needed.
#pragma once

#include "linear/gemm_sm90.cuh"
#include "primitives/hold.cuh"
#include "primitives/store_async.cuh"

namespace vitune {

template <class C>
struct LinearPartsTraits : LinearTraits<C> {
  static constexpr GemmSm90 kG = C::kGeometry;
  static constexpr int kParts = kG.parts;
  static constexpr int kRowWarps = 4 / kParts;  // whose rows a CTA finishes
  // Behind the ring and what belongs to it: the barrier of the sums, then the sums of all parts.
  static constexpr int kSumBarrierOffset = kG.ring_bytes(), kSumOffset = kG.sum_offset();
  static constexpr int kWarpSums = kG.block_n / 4;  // pairs of a thread
  static constexpr int kSumBytes = kG.sum_bytes();
  static_assert(kParts > 1, "parts are added by a cluster of two CTAs or four");
};

// The one tile of a cluster, and the part of k that is this CTA's.
template <class C>
class TileOrder<LinearPartsTraits<C>> {
  using T = LinearPartsTraits<C>;

 public:
  __device__ __forceinline__ TileOrder(const LinearParams& p, int, int)
      : part_(int(cluster_rank())), steps_(ceil_div(p.k, kBlockK)) {
    const int across = ceil_div(p.n, T::kBlockN), tile = int(blockIdx.x) / T::kParts;
    m_ = tile / across;
    n_ = tile - m_ * across;
  }
  __device__ __forceinline__ bool any() const { return !done_; }
  __device__ __forceinline__ void next() { done_ = true; }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int rank() const { return part_; }
  __device__ __forceinline__ int first_step() const { return part_ * steps_ / T::kParts; }
  __device__ __forceinline__ int steps() const {
    return (part_ + 1) * steps_ / T::kParts - first_step();
  }

 private:
  int part_, steps_, m_, n_;
  bool done_ = false;
};

// The sums of parts, in the shared memory of the CTA that adds them.
template <class T>
struct LinearPartSums {
  u32 base;  // of shared memory

  __device__ __forceinline__ u32 barrier() const { return base + T::kSumBarrierOffset; }
  // The address of this lane's pair `pair` of the sums of `part`, row warp `warp`.
  __device__ __forceinline__ u32 place(int part, int warp, int pair) const {
    const int lane = int(threadIdx.x) % kWarpSize;
    return base + T::kSumOffset +
           (((part * T::kRowWarps + warp) * T::kWarpSums + pair) * kWarpSize + lane) * 8;
  }
  // This warp's, to the CTA of rank `to`.
  __device__ __forceinline__ void send(const float (&d)[T::kBlockN / 2], int part, int warp,
                                       int to) const {
    const u32 there = peer_address(barrier(), to);
#pragma unroll
    for (int pair = 0; pair < T::kWarpSums; ++pair) {
      store_async_8(peer_address(place(part, warp, pair), to), __float_as_uint(d[2 * pair]),
                    __float_as_uint(d[2 * pair + 1]), there);
    }
  }
  // When all have come.
  __device__ __forceinline__ void add(float (&whole)[T::kBlockN / 2], int warp) const {
    mbarrier_wait(barrier(), 0);
#pragma unroll
    for (int pair = 0; pair < T::kWarpSums; ++pair) {
      float low = 0.f, high = 0.f;
#pragma unroll
      for (int part = 0; part < T::kParts; ++part) {
        const uint2 more = load_shared_8(place(part, warp, pair));
        low += __uint_as_float(more.x);
        high += __uint_as_float(more.y);
      }
      whole[2 * pair] = low;
      whole[2 * pair + 1] = high;
    }
  }
};

// The products of this CTA's part, and the epilogue of the rows that are its own.
template <class T>
__device__ __forceinline__ void consume_part(const LinearParams& p, const typename T::Maps& maps,
                                             const LinearShared<T>& shared,
                                             const LinearPartSums<T>& sums) {
  LinearEpilogue<T> epilogue(p, maps, shared);
  PipelineState<T::kStages> at;
  const TileOrder<T> tile(p, 0, 1);
  float d[1][T::kBlockN / 2];
#pragma unroll
  for (int i = 0; i < T::kBlockN / 2; ++i) d[0][i] = 0.f;
  epilogue.begin(tile.row(), tile.column());
  if constexpr (T::kStagedResidual) {
    const bool finishes = int(threadIdx.x) / kWarpSize / T::kRowWarps == tile.rank();
    if (finishes) epilogue.ask_for_residuals(tile.row(), tile.column());
  }
  int before = 0;  // the slot of the step before
#pragma unroll 1
  for (int step = 0; step < tile.steps(); ++step) {
    mbarrier_wait(shared.full(at.index), at.phase);
    multiply(d, shared, at.index, step > 0);
    wgmma_wait<1>();
    if (step > 0) shared.give_back(before);
    before = at.index;
    at.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < T::kBlockN / 2; ++i) hold(d[0][i]);
  shared.give_back(before);
  const int warp = int(threadIdx.x) / kWarpSize, own = warp % T::kRowWarps;
  sums.send(d[0], tile.rank(), own, warp / T::kRowWarps);
  epilogue.columns_ready();
  if (warp / T::kRowWarps != tile.rank()) return;
  float whole[1][T::kBlockN / 2];
  sums.add(whole[0], own);
  epilogue.run(whole, tile.row(), tile.column(), at);
  if (!T::kRowMap && threadIdx.x % kWarpSize == 0) store_wait_read<0>();
}

template <class Config>
__device__ __forceinline__ void linear_split_k_sm90(
    const LinearParams& p, const typename LinearPartsTraits<Config>::Maps& maps) {
  using T = LinearPartsTraits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const LinearShared<T> shared{shared_address(shared_memory)};
  const LinearPartSums<T> sums{shared.base};
  if (threadIdx.x == kGroupThreads) {
    prefetch_map(maps.x);
    prefetch_map(maps.w);
    if constexpr (!T::kRowMap) prefetch_map(maps.out);
    if constexpr (T::kCopiedResidual) prefetch_map(maps.residual);
    if constexpr (T::kTwoResults) prefetch_map(maps.aux);
  }
  if (threadIdx.x == 0) {
    mbarrier_init(sums.barrier(), 1);
    shared.init();
    mbarrier_expect(sums.barrier(), T::kSumBytes);
  }
  __syncthreads();
  cluster_barrier();  // now every CTA of it has begun, and counts what comes
  wait_for_earlier_grids();
  if (threadIdx.x == kGroupThreads) {
    produce(p, maps, shared);
  } else if (threadIdx.x < kGroupThreads) {
    consume_part(p, maps, shared, sums);
  } else if constexpr (T::kMomentsGiven > 0) {
    merge_moments(p, shared);
  }
}

}  // namespace vitune
