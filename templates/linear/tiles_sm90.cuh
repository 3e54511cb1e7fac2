// templates/linear/tiles_sm90.cuh -- Which tiles of the result a CTA works on, over which of k.
//
// Units, single tiles or the two of a pair of CTAs, are numbered along n first, so that CTAs
// running side by side share rows of x in L2; with splits all units of a split come before the next
// split's. A persistent cluster takes every so-manieth. The second tile of the last pair may lie
// outside of the result: it is computed from zeros and not written.
#pragma once

#include "linear/config_sm90.cuh"
#include "primitives/cluster.cuh"

namespace vitune {

template <class T>
class TileOrder {
 public:
  // From this cluster's unit number `first` on, every `step`-th.
  __device__ __forceinline__ TileOrder(const LinearParams& p, int first, int step)
      : rank_(T::kCluster == 1 ? 0 : int(cluster_rank())) {
    const int across = ceil_div(p.n, T::kBlockN), down = ceil_div(p.m, T::kBlockM);
    n_units_ = T::kPair == 1 ? ceil_div(across, 2) : across;
    units_ = n_units_ * (T::kPair == 2 ? ceil_div(down, 2) : down);
    steps_ = ceil_div(p.k, kBlockK);
    splits_ = T::kSplit ? p.splits : 1;
    const int clusters = int(gridDim.x) / T::kCluster;
    index_ = int(blockIdx.x) / T::kCluster + first * clusters;
    stride_ = step * clusters;
    place();
  }
  __device__ __forceinline__ bool any() const { return index_ < units_ * splits_; }
  __device__ __forceinline__ void next() {
    index_ += stride_;
    place();
  }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int rank() const { return rank_; }
  // Of k, kBlockK each: at least one, as there are no more splits than steps.
  __device__ __forceinline__ int split() const { return split_; }
  __device__ __forceinline__ int first_step() const {
    return T::kSplit ? split_ * steps_ / splits_ : 0;
  }
  __device__ __forceinline__ int steps() const {
    return T::kSplit ? (split_ + 1) * steps_ / splits_ - first_step() : steps_;
  }

 private:
  __device__ __forceinline__ void place() {
    split_ = T::kSplit ? int(u32(index_) / u32(units_)) : 0;
    const int unit = index_ - split_ * units_;
    const int m = int(u32(unit) / u32(n_units_));
    const int n = unit - m * n_units_;
    m_ = T::kPair == 2 ? m * 2 + rank_ : m;
    n_ = T::kPair == 1 ? n * 2 + rank_ : n;
  }

  int rank_, n_units_, units_, steps_, splits_, index_, stride_;
  int m_, n_, split_;
};

}  // namespace vitune
