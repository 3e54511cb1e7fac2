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
// Tunables:
//   kBlockM, kBlockN   rows and columns of the result that a CTA computes
//   kBlockK            columns of x and w per step
//   kWarpM, kWarpN     rows and columns of a warp's part of these
//   kStages            steps whose operands are in shared memory or on their way
//   kSplit             parts of k are added up by a second kernel
//   kRaster            rows of tiles that are gone through together, column by column
// and kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic
// shared memory, checked against the layout.
#pragma once

#include "primitives/swizzle.cuh"
#include "primitives/types.cuh"

namespace vitune {

// w as it lies in shared memory: a row for each column of the result, or one for each step of k.
template <class C, bool kTransposed>
struct LinearWeightTile {
  using Tile = PanelTile<C::kBlockK, C::kBlockN, 2 * C::kBlockK>;
};
template <class C>
struct LinearWeightTile<C, true> {
  using Tile = PanelTile<C::kBlockN, C::kBlockK, C::kBlockN % 64 == 0 ? 128 : 64>;
};

template <class C>
struct LinearTraits : C {
  static constexpr int kWarpsM = C::kBlockM / C::kWarpM, kWarpsN = C::kBlockN / C::kWarpN;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarpSize;
  static constexpr int kTilesM = C::kWarpM / 16, kTilesN = C::kWarpN / 8;  // products of a warp
  static constexpr int kSteps = C::kBlockK / 16;
  using XTile = PanelTile<C::kBlockK, C::kBlockM, 2 * C::kBlockK>;
  using WTile = typename LinearWeightTile<C, C::kTransposed>::Tile;
  static constexpr int kStageBytes = XTile::kBytes + WTile::kBytes;
  // Sums of 16 rows of a warp on their way to the epilogue, in fp32. Eight words more than the
  // columns: eight rows then begin in four different groups of eight banks.
  static constexpr int kStagingPitch = 4 * (C::kWarpN + 8);
  static constexpr int kStagingBytes = 16 * kStagingPitch;
  static constexpr int kBytes = max_of(C::kStages * kStageBytes, kWarpsM* kWarpsN* kStagingBytes);

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kBlockM % C::kWarpM == 0 && C::kBlockN % C::kWarpN == 0,
                "a CTA's tile must be whole warps' parts");
  static_assert(C::kWarpM % 16 == 0, "kWarpM must be a multiple of 16");
  static_assert(C::kWarpN == 16 || C::kWarpN == 32 || C::kWarpN == 64 || C::kWarpN == 128,
                "kWarpN must be 16, 32, 64 or 128");
  static_assert(C::kBlockK == 32 || C::kBlockK == 64, "kBlockK must be 32 or 64");
  static_assert(C::kStages >= 2, "kStages must be at least 2");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
