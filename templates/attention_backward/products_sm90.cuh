// templates/attention_backward/products_sm90.cuh -- The products of both passes of the family sm90,
// by a warpgroup.
//
// Over the head: scores and gradients of weights, 64 rows by those of a step, from the rows' tile
// or its fragments in registers. Over the step: gradients of the rows, from fragments that are
// rounded results of the first, with the step's tiles across their rows.
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "primitives/hold_operand.cuh"
#include "primitives/shared.cuh"
#include "primitives/wgmma.cuh"
#include "primitives/wgmma_register_a.cuh"

namespace vitune {

// After the wait for the products that read them.
template <int kSteps>
__device__ __forceinline__ void hold_fragments(u32 (&fragments)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) hold_operand(fragments[step][i]);
  }
}

// One operand of a warpgroup's 64 rows.
template <class T>
struct RowOperand {
  u32 fragments[T::kHeadSteps][4];  // of this warp's 16 rows, with kInRegisters
  u64 descriptor;                   // else

  // From the tile at `tile`, whose copy is complete, and the warpgroup's first row in there.
  __device__ __forceinline__ void load(u32 tile, int row0) {
    if constexpr (T::kInRegisters) {
#pragma unroll
      for (int step = 0; step < T::kHeadSteps; ++step) {
        load_fragment(fragments[step], tile, row0, step);
      }
    } else {
      descriptor = descriptor_k_major<T::kSwizzle>(tile + row0 * T::kSwizzle);
    }
  }
  // Sixteen columns of this warp's rows.
  static __device__ __forceinline__ void load_fragment(u32 (&fragment)[4], u32 tile, int row0,
                                                       int step) {
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize % 4;
    ldmatrix_x4(fragment,
                tile + T::RowTile::offset(row0 + 16 * warp + lane % 16, 2 * step + lane / 16));
  }
};

// d = rows B', for the first kWidth rows of the step's tile `b`. Issues the products as one group.
template <class T, int kWidth>
__device__ __forceinline__ void multiply_over_head(float (&d)[kWidth / 2],
                                                   const RowOperand<T>& rows, u32 b) {
  const u64 along = descriptor_k_major<T::kSwizzle>(b);
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) d[i] = 0.f;  // overwritten; see primitives/wgmma.cuh
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < T::kHeadSteps; ++step) {
    const u64 columns = descriptor_at(along, T::StepTile::step_offset(step));
    if constexpr (T::kInRegisters) {
      WgmmaRegisterA<T::kElement, kWidth>::b_along(d, rows.fragments[step], columns, step > 0);
    } else {
      Wgmma<T::kElement, kWidth>::shared_a(
          d, descriptor_at(rows.descriptor, T::RowTile::step_offset(step)), columns, step > 0);
    }
  }
  wgmma_commit();
}

// What is left of kWidth columns as operands of products over a step. Where the last sixteen have
// eight columns only, zeros stand for the other eight.
template <int kWidth>
using StepFragments = u32[ceil_div(kWidth, 16)][4];

// sums += a B, for the first kWidth rows of the step's tile `b`. Issues the products as one group.
template <class T, int kWidth, int kSteps>
__device__ __forceinline__ void multiply_over_step(float (&sums)[T::kHeadDim / 2],
                                                   const u32 (&a)[kSteps][4], u32 b) {
  const u64 across = descriptor_mn_major<T::kSwizzle>(b, T::StepTile::kAtomBytes);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < ceil_div(kWidth, 16); ++step) {
    Wgmma<T::kElement, T::kHeadDim>::register_a(
        sums, a[step], descriptor_at(across, step * 16 * T::kSwizzle), true);
  }
  wgmma_commit();
}

}  // namespace vitune
