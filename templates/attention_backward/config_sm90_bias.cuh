// templates/attention_backward/config_sm90_bias.cuh -- What a generated Config of the family
// sm90_bias must say, and what follows from it.
//
// Facts of the problem: those of config.cuh, with a bias, without a mask and a causal mask; and
// kGeometry, an AttentionBackwardSm90Bias of its tunables (geometry_sm90_bias.cuh).
#pragma once

#include "attention_backward/config_sm90.cuh"
#include "attention_backward/geometry_sm90_bias.cuh"
#include "attention_backward/sm90_bias_params.cuh"
#include "primitives/rules.cuh"

namespace vitune {

// What the passes of the family sm90 ask of a Config.
template <class C>
struct BiasPassConfig : C {
  static constexpr AttentionBackwardSm90 kGeometry = C::kGeometry.passes();
};

// dq or, with kOfKeys, dkv.
template <class C, bool kOfKeys>
struct BiasPass : BackwardPass<BiasPassConfig<C>, kOfKeys> {
  static constexpr AttentionBackwardSm90Bias kB = C::kGeometry;
  static_assert(RulesHold<broken_rule(kB, attention_backward_sm90_bias_rules().all)>::kValue);
  static_assert(C::kBias >= 1 && C::kBias <= 3 && !C::kMask && !C::kCausal,
                "the family sm90_bias has a bias, and no mask");
  static_assert(kB.bias_bytes == (C::kBias == 1 ? 4 : 2), "the geometry is of another bias");
  static constexpr bool kKeepsBias = kB.keeps_bias != 0;
  static constexpr int kFragmentBytes = kB.fragment_bytes();
  static constexpr int kColumnFragments = kB.column_fragments(kOfKeys);
  static constexpr int kFragmentPitch = kB.fragment_pitch(kOfKeys);
  static constexpr int kRowFragments = kB.row_fragments(kOfKeys);
  static constexpr int kBiasFragments = kB.bias_fragments(kOfKeys);
  static constexpr int kMoreBarriersOffset = kB.more_barriers_offset(kOfKeys);
  static constexpr int kBiasOffset = kB.bias_offset(kOfKeys);
  static constexpr int kRowSlots = kB.row_slots;
  static constexpr int kSecondRowsOffset = kB.second_rows_offset(kOfKeys);
};

template <class C>
using BiasQueryPass = BiasPass<C, false>;
template <class C>
using BiasKeyPass = BiasPass<C, true>;

// The kernel of dbias: a warpgroup has 64 query rows of a tile.
template <class C>
struct DbiasSm90Traits : C {
  static constexpr AttentionBackwardSm90Bias kB = C::kGeometry;
  static constexpr AttentionBackwardSm90 kSums = kB.sums();
  static constexpr AttentionBackwardSm90::Pass kP = kB.pass(false);
  static constexpr int kQueries = kB.queries, kKeys = kB.keys;
  static constexpr int kGroups = kB.dbias_groups, kThreads = kSums.threads();
  static constexpr int kBlockRows = kB.tile_rows(), kTileKeys = kB.tile_keys();
  static constexpr int kRowTiles = kB.row_tiles(), kKeyTiles = kB.key_tiles();
  static constexpr int kBlocks = kRowTiles * kKeyTiles;
  static constexpr int kStages = kB.kDbiasStages;

  static constexpr int kHeadSteps = ceil_div(C::kHeadDim, 16);  // of products over the head
  static constexpr int kSwizzle = kP.swizzle();
  using RowTile = SmemTile<C::kHeadDim, kBlockRows, kSwizzle>;
  using StepTile = SmemTile<C::kHeadDim, kTileKeys, kSwizzle>;
  static_assert(RowTile::kBytes == kB.row_tile_bytes() && StepTile::kBytes == kB.key_tile_bytes(),
                "the geometry's tiles differ from the kernel's");

  static constexpr int kStep = kB.dbias_step;  // the last one of a tile may be narrower
  static constexpr int kStageBytes = kB.dbias_stage_bytes();
  static constexpr int kStatsOffset = kB.dbias_stats_offset();
  static constexpr int kStatsBytes = kB.dbias_stats_bytes();
  static constexpr int kStatsRows = kSums.stats_rows();
  static constexpr int kFragmentBytes = kB.fragment_bytes();
  static constexpr int kFragmentPitch = kB.fragment_pitch(false);
  static constexpr int kRowFragments = kB.row_fragments(false);
  static constexpr int kBiasFragments = kB.dbias_fragments();
  static constexpr int kBiasOffset = kB.dbias_bias_offset();
  static constexpr int kBarrierOffset = kB.dbias_barrier_offset();
  static constexpr int kSumPitch = kB.sum_pitch();

  static constexpr bool kTradesRegisters = kSums.trades_registers();
  static constexpr int kComputeRegisters = kSums.compute_registers();
  static constexpr int kCopyRegisters = kSums.copy_registers();
};

}  // namespace vitune
