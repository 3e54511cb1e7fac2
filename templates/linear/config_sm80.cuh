// templates/linear/config_sm80.cuh -- What a generated Config of the family sm80 must say, and what
// follows from it.
//
// Facts of the problem (the generator derives them):
//   kElement           0 = fp16, 1 = bf16: type of x, w and aux; sums are fp32
//   kOutput            SupportType of the residual and the result
//   kParameters        SupportType of bias and scale
//   kActivation        LinearActivationKind
//   kNorm              rows of x are normalised: 0 not, 1 by mean and rstd, 2 by rstd
//   kDerivative        LinearActivationKind: the sums are multiplied by its derivative at
//                      LinearParams::residual; 0 where there is none
//   kBias, kScale, kFactor, kResidual, kAux  which of these there are; pre is a residual, and its
//                      activation aux
//   kPeriodic          the result's rows lie in periods, or the residual's repeat with them
//   kPeriodicResidual  the residual's repeat
//   kTransposed        w is [k, n]
//   kCopyX, kCopyW     bytes of an aligned access to rows of x and of w: 16, 8, 4, 2
//   kVector            columns of an aligned access to all of n: 8, 4, 2, 1
//   kSplit             parts of k are added up by a second kernel
// and kGeometry, a GemmSm80 of its tunables (geometry_sm80.cuh).
#pragma once

#include "collective/smem_tile.cuh"
#include "linear/geometry_sm80.cuh"
#include "primitives/rules.cuh"
#include "primitives/types.cuh"

namespace vitune {

// The facts that follow from a Config with a GemmSm80.
template <class C>
struct GemmSm80Traits : C {
  static constexpr GemmSm80 kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, gemm_sm80_rules().all)>::kValue);
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");

  static constexpr int kBlockM = kG.block_m, kBlockN = kG.block_n, kBlockK = kG.block_k;
  static constexpr int kWarpM = kG.warp_m, kWarpN = kG.warp_n, kStages = kG.stages;
  static constexpr int kWarpsN = kBlockN / kWarpN, kThreads = kG.threads();
  static constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;  // products of a warp
  static constexpr int kSteps = kBlockK / 16;
  static constexpr int kStageBytes = kG.stage_bytes();
  static constexpr int kStagingPitch = kG.staging_pitch(), kStagingBytes = kG.staging_bytes();
};

// An operand as it lies in shared memory: a row for each of `kBlock` rows or columns of the result,
// or one for each step of the depth.
template <class C, int kBlock, bool kAcross>
struct GemmSm80Tile {
  static constexpr int kDepth = C::kGeometry.block_k;
  using Tile = SmemTile<kDepth, kBlock, 2 * kDepth>;
};
template <class C, int kBlock>
struct GemmSm80Tile<C, kBlock, true> {
  using Tile = SmemTile<kBlock, C::kGeometry.block_k, 2 * GemmSm80::atom_columns(kBlock)>;
};

template <class C>
struct LinearTraits : GemmSm80Traits<C> {
  using XTile = typename GemmSm80Tile<C, C::kGeometry.block_m, false>::Tile;
  using WTile = typename GemmSm80Tile<C, C::kGeometry.block_n, C::kTransposed>::Tile;
  static_assert(XTile::kBytes + WTile::kBytes == C::kGeometry.stage_bytes(), "tiles fill a stage");
};

}  // namespace vitune
