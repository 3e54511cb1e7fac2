// templates/linear/split_sum.cuh -- The second kernel of a split linear layer: adds the parts.
//
// In the order of the splits, so that the same bits come out each time; then the epilogue.
#pragma once

#include "linear/epilogue.cuh"

namespace vitune {

template <class C>
__device__ void linear_split_sum(const LinearParams& p) {
  constexpr int kVector = C::kVector;
  using Part = Vector<2, kVector>;
  const i64 groups = p.n / kVector, all = groups * p.m, part = i64(p.m) * p.n;
  const i64 threads = i64(gridDim.x) * blockDim.x;
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += threads) {
    const int row = int(i / groups), column = int(i - row * groups) * kVector;
    LinearColumns<C, kVector> columns;
    columns.load(p, column);
    const float* from = p.partials + i64(row) * p.n + column;
    float sums[kVector] = {};
    for (int split = 0; split < p.splits; ++split, from += part) {
      float more[kVector];
      Part::unpack(load_piece<Part::kBytes>(from), more);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[j] += more[j];
    }
    columns.finish(p, row, column, sums);
  }
}

}  // namespace vitune
