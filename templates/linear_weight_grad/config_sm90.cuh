// templates/linear_weight_grad/config_sm90.cuh -- What a generated Config of the family sm90 must
// say, and what follows from it.
//
// Facts of the problem: those of config_sm80.cuh; and kGeometry, a GemmSm90 of its tunables
// (linear/geometry_sm90.cuh). How the parts of the rows are cut is told at launch.
#pragma once

#include "linear/ring_sm90.cuh"
#include "linear_weight_grad/params.cuh"
#include "linear_weight_grad/sm90_params.cuh"

namespace vitune {

template <class C>
struct WeightGradSm90Traits : GemmSm90Traits<C> {
  static constexpr GemmSm90 kG = C::kGeometry;
  static constexpr int kDepth = GemmSm90::kDepth;

  // A slot: atom columns of 64 columns of dy, then those of x; 64 rows each.
  static constexpr int kAtomBytes = kDepth * 128, kDyBytes = kG.a_bytes();
  // Behind the ring, eight rows of 64 ones.
  static constexpr int kOnesOffset = kG.ones_offset(), kOnesBytes = kG.ones_bytes();

  static_assert(C::kVector >= 2, "k must be a multiple of 2");
};

}  // namespace vitune
