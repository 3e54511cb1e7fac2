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
// Tunables:
//   kBlockM, kBlockN  rows and columns of dw that a CTA computes
//   kBlockK        rows of dy and x per step
//   kWarpM, kWarpN    rows and columns of a warp's part of these
//   kStages        steps whose operands are in shared memory or on their way
// and kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic
// shared memory, checked against the layout. How the parts of the rows are cut is told at launch.
#pragma once

#include "primitives/swizzle.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <class C>
struct WeightGradTraits : C {
  static constexpr int kWarpsM = C::kBlockM / C::kWarpM, kWarpsN = C::kBlockN / C::kWarpN;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarpSize;
  static constexpr int kTilesM = C::kWarpM / 16, kTilesN = C::kWarpN / 8;  // products of a warp
  static constexpr int kSteps = C::kBlockK / 16;
  // A row of shared memory for each row of dy and x.
  using DyTile = PanelTile<C::kBlockM, C::kBlockK, C::kBlockM % 64 == 0 ? 128 : 64>;
  using XTile = PanelTile<C::kBlockN, C::kBlockK, C::kBlockN % 64 == 0 ? 128 : 64>;
  static constexpr int kStageBytes = DyTile::kBytes + XTile::kBytes;
  // Sums of 16 rows of a warp on their way out, in fp32. Eight words more than the columns: eight
  // rows then begin in four different groups of eight banks.
  static constexpr int kStagingPitch = 4 * (C::kWarpN + 8);
  static constexpr int kStagingBytes = 16 * kStagingPitch;
  static constexpr int kBytes = max_of(C::kStages * kStageBytes, kWarpsM* kWarpsN* kStagingBytes);

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kBlockM % C::kWarpM == 0 && C::kBlockN % C::kWarpN == 0,
                "a CTA's tile must be whole warps' parts");
  static_assert(C::kBlockM % 32 == 0 && C::kBlockN % 32 == 0, "blocks are multiples of 32");
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
