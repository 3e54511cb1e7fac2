// templates/attention_backward/config_sm90.cuh -- What a generated Config of the family sm90 must
// say, and what follows from it.
//
// Facts of the problem: those of config.cuh, without a bias and a mask; and kGeometry, an
// AttentionBackwardSm90 of its tunables (geometry_sm90.cuh), for which the numbers of queries and
// keys are constants.
#pragma once

#include "attention/params.cuh"
#include "attention_backward/geometry_sm90.cuh"
#include "attention_backward/params.cuh"
#include "attention_backward/sm90_params.cuh"
#include "collective/smem_tile.cuh"
#include "primitives/rules.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroupRows = AttentionBackwardSm90::kGroupRows;

// One of the two kernels: kOfKeys has rows of keys.
template <class C, bool kOfKeys>
struct BackwardPass : C {
  static constexpr AttentionBackwardSm90 kG = C::kGeometry;
  static constexpr AttentionBackwardSm90::Pass kP = kOfKeys ? kG.dkv() : kG.dq();
  static_assert(RulesHold<broken_rule(kG, attention_backward_sm90_rules().all)>::kValue);
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kHeadDim == kG.head_dim, "the geometry is of another head size");
  static_assert(C::kHeadDim % 8 == 0 && C::kHeadDim >= 8 && C::kHeadDim <= 128,
                "kHeadDim must be 8 to 128 in steps of 8");

  static constexpr int kQueries = kG.queries, kKeys = kG.keys;
  static constexpr int kGroups = kG.groups, kThreads = kG.threads();
  static constexpr int kBlockRows = kP.rows();  // of a CTA
  static constexpr int kRows = kOfKeys ? kKeys : kQueries;
  static constexpr int kBlocks = kOfKeys ? kG.key_blocks() : kG.query_blocks();  // of a head
  static constexpr int kHeadSteps = ceil_div(C::kHeadDim, 16);  // of products over the head

  static constexpr int kSwizzle = kP.swizzle();
  using RowTile = SmemTile<C::kHeadDim, kP.rows(), kSwizzle>;
  using StepTile = SmemTile<C::kHeadDim, kP.step, kSwizzle>;
  static constexpr int kRowOperands = kP.row_operands;
  static constexpr bool kInRegisters = kP.in_registers();

  // Steps over the other side: whole ones, then one of kTailWidth rows of which kTail are there.
  static constexpr int kStep = kP.step, kStages = kP.stages;
  static constexpr int kWholeSteps = kP.whole_steps(), kTail = kP.tail();
  static constexpr int kTailWidth = ceil_div(kTail, kOfKeys ? 16 : 8) * (kOfKeys ? 16 : 8);
  static constexpr int kSteps = kWholeSteps + (kTail > 0);

  static constexpr int kRingOffset = kP.ring_offset();
  static constexpr int kStageBytes = 2 * StepTile::kBytes, kStatsOffset = kP.stats_offset();
  static constexpr int kStatsBytes = kP.stats_bytes(), kStatsRows = kG.stats_rows();
  static constexpr int kStagingOffset = kP.staging_offset();
  static constexpr int kStagingBytes = kP.staging_bytes(), kStagingPitch = kP.staging_pitch();
  static constexpr int kBarrierOffset = kP.barrier_offset();
  static_assert(RowTile::kBytes == kP.row_tile_bytes() && StepTile::kBytes == kP.step_tile_bytes(),
                "the geometry's tiles differ from the kernel's");

  static constexpr bool kTradesRegisters = kG.trades_registers();
  static constexpr int kComputeRegisters = kG.compute_registers();
  static constexpr int kCopyRegisters = kG.copy_registers();
};

template <class C>
using QueryPass = BackwardPass<C, false>;
template <class C>
using KeyPass = BackwardPass<C, true>;

}  // namespace vitune
