// templates/linear_weight_grad/store.cuh -- Where gradients and parts of them go, in all families.
//
// A gradient that is added to another is read by the thread that writes it, just before: both may
// be the same memory.
#pragma once

#include "linear_weight_grad/params.cuh"
#include "primitives/vector.cuh"

namespace vitune {

// Writes kCount neighbouring gradients from element `at` on, added to those of `before`.
template <class C, int kCount>
__device__ __forceinline__ void weight_grad_store(void* to, const void* before, i64 at,
                                                  float (&values)[kCount]) {
  using Out = Vector<C::kOutput, kCount>;
  if (C::kAdd) {
    float more[kCount];
    Out::unpack(load_piece<Out::kBytes>(Out::address(before, at)), more);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += more[i];
  }
  store_piece(Out::address(to, at), Out::pack(values));
}

// kCount neighbouring products of part `split`: to dw, or as they are to the partials.
template <class C, int kCount>
__device__ __forceinline__ void weight_grad_put(const WeightGradParams& p, int split, int row,
                                                int column, float (&values)[kCount]) {
  const i64 at = i64(row) * p.k + column;
  if constexpr (C::kDirect) {
    weight_grad_store<C>(p.dw, p.dw_before, at, values);
  } else {
    store_piece(p.partials + i64(split) * p.n * p.k + at, Vector<2, kCount>::pack(values));
  }
}

}  // namespace vitune
