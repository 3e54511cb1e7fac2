// templates/linear/epilogue.cuh -- From sums of products to the result: norm, bias, activation,
// scale, factor, residual, and the store; or the derivative of an activation, and the store.
//
// A family hands over kCount (a power of two) neighbouring columns of a row at a time, the first of
// them a multiple of kCount, wherever its accumulators lie. Accesses take as many of these at once
// as the generator's kVector allows; columns from n and rows from m on are left alone. The residual
// is read by the thread that writes the result, just before: both may be the same memory.
#pragma once

#include "linear/activation.cuh"
#include "linear/derivative.cuh"
#include "linear/params.cuh"
#include "primitives/vector.cuh"

namespace vitune {

template <class C, int kCount>
struct LinearColumns {
  static constexpr int kAccess = min_of(C::kVector, kCount);
  static constexpr int kAccesses = kCount / kAccess;
  using Parameter = Vector<C::kParameters, kAccess>;
  using Out = Vector<C::kOutput, kAccess>;
  using Aux = Vector<C::kElement, kAccess>;
  using Sums = Vector<2, kAccess>;
  using Raw = typename Parameter::Raw;
  typename Sums::Raw weight_sums[kAccesses];
  Raw bias[kAccesses], scale[kAccesses];

  // The operands of the columns from `column` on.
  __device__ __forceinline__ void load(const LinearParams& p, int column) {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      const int at = column + i * kAccess;
      if (at >= p.n) continue;
      if (C::kNorm == 1) {
        weight_sums[i] = load_constant_piece<Sums::kBytes>(Sums::address(p.weight_sums, at));
      }
      if (C::kBias) bias[i] = parameter(p.bias, at);
      if (C::kScale) scale[i] = parameter(p.scale, at);
    }
  }
  static __device__ __forceinline__ Raw parameter(const void* data, int at) {
    return load_constant_piece<Parameter::kBytes>(Parameter::address(data, at));
  }

  // The sums in `y` become the result: what the activation was given is at p.residual.
  static __device__ __forceinline__ void multiply_slopes(const LinearParams& p, int row, int at,
                                                         float (&y)[kAccess]) {
    float x[kAccess], value[kAccess];
    const void* const from = Aux::address(p.residual, row * p.residual_row + at);
    Aux::unpack(load_piece<Aux::kBytes>(from), x);
#pragma unroll
    for (int j = 0; j < kAccess; ++j) {
      const LinearSlope of = linear_slope<C::kDerivative, C::kElement>(x[j]);
      y[j] *= of.slope;
      value[j] = of.value;
    }
    if (C::kAux) store_piece(Aux::address(p.aux, row * p.aux_row + at), Aux::pack(value));
  }

  // The result's `sums` are of row `row` and the columns that were loaded.
  __device__ __forceinline__ void finish(const LinearParams& p, int row, int column,
                                         const float (&sums)[kCount]) const {
    if (row >= p.m) return;
    const float mean = C::kNorm == 1 ? __ldg(p.mean + row) : 0.f;
    const float rstd = C::kNorm != 0 ? __ldg(p.rstd + row) : 1.f;
    const float of_row = C::kFactor ? __ldg(p.mean + row / p.period) : 1.f;
    int residual_row = row;
    i64 out_row = row;
    if (C::kPeriodic) {
      const int period = row / p.period, rest = row - period * p.period;
      if (C::kPeriodicResidual) residual_row = rest;
      out_row = i64(period) * p.spread + rest;
    }
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      const int at = column + i * kAccess;
      if (at >= p.n) continue;
      float y[kAccess], factor[kAccess];
#pragma unroll
      for (int j = 0; j < kAccess; ++j) y[j] = sums[i * kAccess + j];
      if constexpr (C::kDerivative != kActNone) {
        multiply_slopes(p, row, at, y);
        store_piece(Out::address(p.out, out_row * p.out_row + at), Out::pack(y));
        continue;
      }
      if (C::kNorm == 1) {
        Sums::unpack(weight_sums[i], factor);
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] -= mean * factor[j];
      }
      if (C::kNorm != 0) {
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] *= rstd;
      }
      if (C::kBias) {
        Parameter::unpack(bias[i], factor);
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] += factor[j];
      }
      if (C::kAux) {
        const typename Aux::Raw before = Aux::pack(y);
        store_piece(Aux::address(p.aux, row * p.aux_row + at), before);
        if (C::kOutput != 2) Aux::unpack(before, y);
      }
#pragma unroll
      for (int j = 0; j < kAccess; ++j) {
        y[j] = linear_activation<C::kActivation, C::kOutput>(y[j]);
      }
      if (C::kScale) {
        Parameter::unpack(scale[i], factor);
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] *= factor[j];
      }
      if (C::kFactor) {
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] *= of_row;
      }
      if (C::kResidual) {
        Out::unpack(
            load_piece<Out::kBytes>(Out::address(p.residual, residual_row * p.residual_row + at)),
            factor);
#pragma unroll
        for (int j = 0; j < kAccess; ++j) y[j] += factor[j];
      }
      store_piece(Out::address(p.out, out_row * p.out_row + at), Out::pack(y));
    }
  }
};

}  // namespace vitune
