// templates/linear_weight_grad/finish.cuh -- The second kernel of a weight gradient: adds the parts
// in an order that is always the same, then scales, adds and rounds.
//
// A CTA has a row of dw: its products, the gradient of its scale, which is their sum weighted by w,
// and the row's bias. Of many parts each of kPartGroups groups of threads adds some, so that few
// columns of them are read by many threads; then the groups are added in their order. Where the
// products are in dw already (kDirect) there is the bias alone to do, by a warp for each row.
#pragma once

#include "linear_weight_grad/store.cuh"
#include "norm/row_sum.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
struct WeightGradFinish : C {
  static constexpr int kThreads = C::kFinishThreads, kGroups = C::kPartGroups;
  static constexpr int kGroupThreads = kThreads / kGroups;
  static constexpr int kColumns = kGroupThreads * C::kVector;  // at once
  // The sums of each group's threads; then a word for each warp.
  static constexpr int kSumBytes = kThreads * C::kVector * 4;
  static constexpr int kBytes = kSumBytes + kThreads / kWarpSize * 4;

  static_assert(kGroupThreads % kWarpSize == 0, "a group must be whole warps");
  static_assert(C::kFinishBytes == kBytes,
                "kFinishBytes differs from the kernel's layout: the launch plan is out of step");
};

template <class C>
__device__ __forceinline__ float weight_grad_parameter(const void* data, i64 at) {
  using One = Vector<C::kParameters, 1>;
  float value[1];
  One::unpack(load_constant_piece<One::kBytes>(One::address(data, at)), value);
  return value[0];
}

// One element of db or dscale.
template <class C>
__device__ __forceinline__ void weight_grad_store_one(void* to, const void* before, int row,
                                                      float value) {
  float one[1] = {value};
  weight_grad_store<C>(to, before, row, one);
}

// The sum of row `row` of dy over all parts, in every lane of the warp.
__device__ __forceinline__ float weight_grad_column_sum(const WeightGradParams& p, int row) {
  float sum = 0.f;
  for (int i = int(threadIdx.x) % kWarpSize; i < p.column_parts; i += kWarpSize) {
    sum += p.column_sums[i64(i) * p.n + row];
  }
  return row_sum<kWarpSize>(sum, 0);
}

// The products from `at` on of the parts that are this thread's group's.
template <class T>
__device__ __forceinline__ void weight_grad_add_parts(const WeightGradParams& p, i64 at,
                                                      float (&sums)[T::kVector]) {
  using Part = Vector<2, T::kVector>;
  const int group = int(threadIdx.x) / T::kGroupThreads;
  const i64 part = i64(p.n) * p.k;
  const float* from = p.partials + group * part + at;
#pragma unroll 4
  for (int i = group; i < p.splits; i += T::kGroups, from += T::kGroups * part) {
    float more[T::kVector];
    Part::unpack(load_piece<Part::kBytes>(from), more);
#pragma unroll
    for (int j = 0; j < T::kVector; ++j) sums[j] += more[j];
  }
}

// The groups' sums, in those of the first.
template <class T>
__device__ __forceinline__ void weight_grad_add_groups(u32 shared, float (&sums)[T::kVector]) {
  const u32 own = shared + int(threadIdx.x) * T::kVector * 4;
#pragma unroll
  for (int j = 0; j < T::kVector; ++j) store_shared(own + 4 * j, __float_as_uint(sums[j]));
  __syncthreads();
  if (int(threadIdx.x) < T::kGroupThreads) {
#pragma unroll
    for (int group = 1; group < T::kGroups; ++group) {
      const u32 from = own + group * T::kGroupThreads * T::kVector * 4;
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) sums[j] += __uint_as_float(load_shared(from + 4 * j));
    }
  }
  __syncthreads();  // before the next columns' are stored
}

// Finishes a row of dw. Gives this thread's share of the row's sum weighted by w.
template <class T, class C>
__device__ __forceinline__ float weight_grad_finish_row(const WeightGradParams& p, int row,
                                                        float scale, u32 shared) {
  using Parameter = Vector<C::kParameters, C::kVector>;
  const int thread = int(threadIdx.x) % T::kGroupThreads;
  float dot = 0.f;
#pragma unroll 1
  for (int first = 0; first < p.k; first += T::kColumns) {
    const int column = first + thread * C::kVector;
    const i64 at = i64(row) * p.k + column;
    float sums[C::kVector] = {};
    if (column < p.k) weight_grad_add_parts<T>(p, at, sums);
    if constexpr (T::kGroups > 1) weight_grad_add_groups<T>(shared, sums);
    if (column >= p.k || int(threadIdx.x) >= T::kGroupThreads) continue;
    if constexpr (C::kScale) {
      float w[C::kVector];
      Parameter::unpack(load_constant_piece<Parameter::kBytes>(Parameter::address(p.w, at)), w);
#pragma unroll
      for (int j = 0; j < C::kVector; ++j) {
        dot += w[j] * sums[j];
        sums[j] *= scale;
      }
    }
    weight_grad_store<C>(p.dw, p.dw_before, at, sums);
  }
  return dot;
}

template <class C>
__device__ void weight_grad_finish(const WeightGradParams& p) {
  using T = WeightGradFinish<C>;
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  wait_for_earlier_grids();
  if constexpr (C::kDirect) {
    const int row = int(blockIdx.x) * (T::kThreads / kWarpSize) + warp;
    if (row >= p.n) return;
    const float sum = weight_grad_column_sum(p, row);
    if (lane == 0) weight_grad_store_one<C>(p.db, p.db_before, row, sum);
  } else {
    extern __shared__ __align__(16) char shared_memory[];
    const u32 shared = shared_address(shared_memory);
    const int row = int(blockIdx.x);
    const float scale = C::kScale ? weight_grad_parameter<C>(p.scale, row) : 1.f;
    float dot = weight_grad_finish_row<T, C>(p, row, scale, shared);
    if constexpr (C::kScale) dot = row_sum<T::kThreads>(dot, shared + T::kSumBytes);
    if (warp > 0) return;
    const float sum = C::kBias ? weight_grad_column_sum(p, row) : 0.f;
    if (lane > 0) return;
    if (C::kBias) weight_grad_store_one<C>(p.db, p.db_before, row, scale * sum);
    if constexpr (C::kScale) {
      if (C::kBias) dot += weight_grad_parameter<C>(p.b, row) * sum;
      weight_grad_store_one<C>(p.dscale, p.dscale_before, row, dot);
    }
  }
}

}  // namespace vitune
