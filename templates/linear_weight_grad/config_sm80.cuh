// templates/linear_weight_grad/config_sm80.cuh -- What a generated Config of the family sm80 must
// say, and what follows from it.
//
// Facts of the problem (the generator derives them):
//   kElement       0 = fp16, 1 = bf16: type of dy and x; sums are fp32
//   kOutput        SupportType of the gradients and of what they are added to
//   kParameters    SupportType of scale, w and b
//   kBias, kScale  db is asked for; there is a scale, and dscale is asked for
//   kAdd           the gradients are added to others
//   kCopyDy, kCopyX  bytes of an aligned access to rows of dy and of x: 16, 8, 4, 2
//   kVector        columns of an aligned access to all of k: 8, 4, 2, 1
//   kDirect        the products are written to dw, not to partials
// and kGeometry, a GemmSm80 of its tunables (linear/geometry_sm80.cuh). How the parts of the rows
// are cut is told at launch.
#pragma once

#include "linear/config_sm80.cuh"

namespace vitune {

// A row of shared memory for each row of dy and x.
template <class C>
struct WeightGradTraits : GemmSm80Traits<C> {
  using DyTile = typename GemmSm80Tile<C, C::kGeometry.block_m, true>::Tile;
  using XTile = typename GemmSm80Tile<C, C::kGeometry.block_n, true>::Tile;
  static_assert(DyTile::kBytes + XTile::kBytes == C::kGeometry.stage_bytes(), "tiles fill a stage");
};

}  // namespace vitune
