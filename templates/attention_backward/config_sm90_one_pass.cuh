// templates/attention_backward/config_sm90_one_pass.cuh -- What a generated Config of the family
// sm90_one_pass must say, and what follows from it.
//
// Facts of the problem: those of config.cuh, without a bias, a mask, a causal mask and shared keys;
// and kGeometry, an AttentionBackwardOnePass of its tunables (geometry_sm90_one_pass.cuh), for
// which the numbers of queries and keys are constants.
#pragma once

#include "attention/params.cuh"
#include "attention_backward/config_sm90.cuh"
#include "attention_backward/geometry_sm90_one_pass.cuh"
#include "attention_backward/one_pass_params.cuh"
#include "attention_backward/params.cuh"
#include "collective/smem_tile.cuh"
#include "primitives/rules.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <class C>
struct OnePass : C {
  using G = AttentionBackwardOnePass;
  static constexpr G kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, attention_backward_one_pass_rules().all)>::kValue);
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kHeadDim == kG.head_dim, "the geometry is of another head size");
  static_assert(C::kHeadDim % 8 == 0 && C::kHeadDim >= 32 && C::kHeadDim <= 128,
                "kHeadDim must be 32 to 128 in steps of 8");
  static_assert(!C::kCausal && !C::kMask && C::kBias == 0, "it serves no masks and no bias");

  static constexpr int kQueries = kG.queries, kKeys = kG.keys;
  static constexpr int kGroups = G::kGroups, kBlockKeys = G::kBlockKeys;
  static constexpr int kHeadSteps = ceil_div(C::kHeadDim, 16);  // of products over the head

  static constexpr int kSwizzle = kG.swizzle();
  using RowTile = SmemTile<C::kHeadDim, kBlockKeys, kSwizzle>;
  using StepTile = SmemTile<C::kHeadDim, kG.step, kSwizzle>;
  using GradientTile = SmemTile<kBlockKeys, kG.gradient_rows(), 128>;  // a row for each query
  static constexpr bool kInRegisters = false;  // K and V are read in shared memory

  // Steps over queries: whole ones, then one of kTailWidth queries of which kTail are there.
  static constexpr int kStep = kG.step, kStages = kG.stages, kKeyStages = kG.key_stages;
  static constexpr int kWholeSteps = kG.whole_steps(), kTail = kG.tail(), kSteps = kG.steps();
  static constexpr int kTailWidth = ceil_div(kTail, 16) * 16;
  static constexpr int kBlocks = kG.blocks(), kLastKeys = kG.last_keys();
  static constexpr bool kStaysInL2 = kG.stays_in_l2();

  static constexpr int kGradientsOffset = kG.gradients_offset(), kRingOffset = kG.ring_offset();
  static constexpr int kStagingOffset = kG.staging_offset(), kStatsOffset = kG.stats_offset();
  static constexpr int kDqStagingOffset = kG.dq_staging_offset();
  static constexpr int kDqStagingBytes = kG.dq_staging_bytes();
  static constexpr int kStagingBytes = kG.staging_bytes(), kStagingPitch = kG.staging_pitch();
  static constexpr int kStatsRows = kG.stats_rows(), kBarrierOffset = kG.barrier_offset();
  static constexpr bool kTransposedDq = kG.transposed_dq();
  static constexpr int kStepSums = kG.step_sums(), kScratchSums = kG.scratch_sums();
  static_assert(RowTile::kBytes == kG.key_tile_bytes() &&
                    StepTile::kBytes == kG.step_tile_bytes() &&
                    GradientTile::kBytes == kG.gradient_tile_bytes(),
                "the geometry's tiles differ from the kernel's");

  static constexpr int kComputeRegisters = kG.compute_registers();
  static constexpr int kDqRegisters = kG.dq_registers();
  static constexpr int kCopyRegisters = kG.copy_registers();
};

}  // namespace vitune
