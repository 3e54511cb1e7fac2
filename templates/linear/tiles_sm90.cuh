// templates/linear/tiles_sm90.cuh -- Which tiles of the result a CTA works on.
//
// Units, single tiles or the two of a pair of CTAs, are numbered along n first, so that CTAs
// running side by side share rows of x in L2. A persistent cluster takes every so-manieth. The
// second tile of the last pair may lie outside of the result: it is computed from zeros and not
// written.
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
    const int clusters = int(gridDim.x) / T::kCluster;
    index_ = int(blockIdx.x) / T::kCluster + first * clusters;
    stride_ = step * clusters;
    place();
  }
  __device__ __forceinline__ bool any() const { return index_ < units_; }
  __device__ __forceinline__ void next() {
    index_ += stride_;
    place();
  }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int rank() const { return rank_; }
  // Steps of kBlockK of k.
  __device__ __forceinline__ int first_step() const { return 0; }
  __device__ __forceinline__ int steps() const { return steps_; }

 private:
  __device__ __forceinline__ void place() {
    const int m = int(u32(index_) / u32(n_units_));
    const int n = index_ - m * n_units_;
    m_ = T::kPair == 2 ? m * 2 + rank_ : m;
    n_ = T::kPair == 1 ? n * 2 + rank_ : n;
  }

  int rank_, n_units_, units_, steps_, index_, stride_;
  int m_, n_;
};

}  // namespace vitune
