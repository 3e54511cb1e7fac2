// benchmarks/lab/linear/tile_order.cuh -- Which tiles of y a CTA works on.
//
// Units, single tiles or the two of a pair of CTAs, are numbered along n first, so that CTAs
// running side by side share rows of x in L2; a persistent cluster takes every so-manieth. The
// second tile of the last pair may lie outside of y: it is computed from zeros and not written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "linear/config_sm90.cuh"
#include "primitives/cluster.cuh"

namespace vitune {

template <class T>
class TileOrder {
 public:
  // From this cluster's unit number `first` on, every `step`-th.
  __device__ __forceinline__ TileOrder(const LinearParams& p, int first, int step)
      : p_(p), rank_(T::kCluster == 1 ? 0 : int(cluster_rank())) {
    const int clusters = int(gridDim.x) / T::kCluster;
    index_ = int(blockIdx.x) / T::kCluster + first * clusters;
    stride_ = step * clusters;
    place();
  }
  __device__ __forceinline__ bool any() const { return index_ < p_.units; }
  __device__ __forceinline__ void next() {
    index_ += stride_;
    place();
  }
  __device__ __forceinline__ int row() const { return m_ * T::kBlockM; }
  __device__ __forceinline__ int column() const { return n_ * T::kBlockN; }
  __device__ __forceinline__ int n_tile() const { return n_; }
  __device__ __forceinline__ int rank() const { return rank_; }

 private:
  __device__ __forceinline__ void place() {
    const int m = int(u32(index_) / u32(p_.n_units));
    const int n = index_ - m * p_.n_units;
    m_ = T::kPairAlongM ? m * T::kCluster + rank_ : m;
    n_ = T::kPairAlongM ? n : n * T::kCluster + rank_;
  }

  const LinearParams& p_;
  int rank_, index_, stride_, m_, n_;
};

}  // namespace vitune
