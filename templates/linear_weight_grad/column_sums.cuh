// templates/linear_weight_grad/column_sums.cuh -- The sums of dy's rows where a library has done
// the products: of as many runs of rows as there are to be parts, each by CTAs of its own.
//
// A warp reads kSumVector columns a lane of every eighth row of the run; then the warps are added
// in their order.
#pragma once

#include "linear_weight_grad/params.cuh"
#include "primitives/shared.cuh"
#include "primitives/vector.cuh"

namespace vitune {

template <class C>
__device__ void weight_grad_column_sums(const WeightGradParams& p) {
  constexpr int kVector = C::kSumVector, kWarps = C::kSumThreads / kWarpSize;
  constexpr int kColumns = kWarpSize * kVector;
  using Part = Vector<C::kElement, kVector>;
  extern __shared__ __align__(16) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  const int across = ceil_div(p.n, kColumns);
  const int part = int(blockIdx.x) / across;
  const int first_column = (int(blockIdx.x) - part * across) * kColumns;
  const int column = first_column + lane * kVector;
  const int end = int(i64(part + 1) * p.m / p.column_parts);
  float sums[kVector] = {};
  if (column < p.n) {
#pragma unroll 4
    for (int row = int(i64(part) * p.m / p.column_parts) + warp; row < end; row += kWarps) {
      float more[kVector];
      Part::unpack(load_piece<Part::kBytes>(Part::address(p.dy, row * p.dy_row + column)), more);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[j] += more[j];
    }
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    store_shared(shared + ((warp * kVector + j) * kWarpSize + lane) * 4, __float_as_uint(sums[j]));
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < kColumns; i += C::kSumThreads) {
    if (first_column + i >= p.n) continue;
    const u32 from = shared + (i % kVector * kWarpSize + i / kVector) * 4;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      sum += __uint_as_float(load_shared(from + w * kVector * kWarpSize * 4));
    }
    p.column_sums[i64(part) * p.n + first_column + i] = sum;
  }
}

}  // namespace vitune
