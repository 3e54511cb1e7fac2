// templates/linear/config_sm90.cuh -- What a generated Config of the family sm90 must say, and what
// follows from it.
//
// Facts of the problem: those of config_sm80.cuh, and
//   kRowMap      the result's rows lie in periods with gaps between them
//   kMomentsGiven    columns of a block of x, whose moments stand for kNorm's means and deviations;
//                    0 = none
//   kMostGiven       blocks of a row of x, at most
//   kEps             where they are given: what the variance is added
// and kGeometry, a GemmSm90 of its tunables (geometry_sm90.cuh).
#pragma once

#include "linear/geometry_sm90.cuh"
#include "linear/params.cuh"
#include "linear/sm90_params.cuh"
#include "primitives/rules.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kBlockK = GemmSm90::kDepth;

template <bool kTwoResults>
struct LinearMaps {
  using Type = LinearTensorMaps;
};
template <>
struct LinearMaps<true> {
  using Type = LinearTwoResultMaps;
};

// The facts that follow from a Config with a GemmSm90.
template <class C>
struct GemmSm90Traits : C {
  static constexpr GemmSm90 kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, gemm_sm90_rules().all)>::kValue);
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");

  static constexpr int kBlockM = kG.block_m, kBlockN = kG.block_n, kStages = kG.stages;
  static constexpr int kGroups = kG.groups, kPair = kG.pair, kCluster = kG.cluster();
  static constexpr int kThreads = kG.threads();
  static constexpr int kRowBlocks = kG.row_blocks();
  static constexpr int kStageBytes = kG.stage_bytes();
  static constexpr int kBarrierOffset = kG.barrier_offset();
  static constexpr bool kTradesRegisters = kG.trades_registers();
  static constexpr int kComputeRegisters = kG.compute_registers();
  static constexpr int kCopyRegisters = kG.copy_registers();
};

template <class C>
struct LinearTraits : GemmSm90Traits<C> {
  static constexpr GemmSm90 kG = C::kGeometry;
  static constexpr bool kPingPong = kG.schedule == GemmSm90::kPingPong;
  static constexpr int kGroupRows = kG.group_rows();

  // A result or a residual of fp32 is copied as twice as many columns of 16 bits.
  static constexpr int kUnits = kG.staged / 2;
  // Written beside the result, of the type of x: the sums before the activation, or of pre, after.
  static constexpr bool kTwoResults = C::kAux;
  using Maps = typename LinearMaps<kTwoResults>::Type;

  // A residual's rows repeat and are read where they are added, or there is one for each of the
  // result's, which is copied to shared memory.
  static constexpr bool kReadResidual = kG.residual == GemmSm90::kRead;
  static constexpr bool kCopiedResidual = kG.residual == GemmSm90::kCopied;
  static constexpr bool kStagedResidual = kG.stages_residual();
  static constexpr bool kRingResidual = kG.has_ring_residual();
  static constexpr int kResidualBarriers = kG.residual_barriers();
  static constexpr int kStoreTileBytes = kG.store_tile_bytes(),
                       kSlotStoreTiles = kG.slot_store_tiles();

  // w as [k, n] lies in a slot in atom columns of 64 by all of the slot's k, across whose rows
  // products take it.
  static constexpr int kXBytes = kG.a_bytes(), kWAtomBytes = kBlockK * 128;
  static constexpr int kXBoxRows = kG.a_box_rows(), kWBoxRows = kG.b_box_rows();

  // Vectors over a tile's columns in fp32, by pairs of columns: sums of w, bias, scale.
  static constexpr bool kSums = C::kNorm == 1, kBiases = C::kBias, kScales = C::kScale;
  static constexpr int kColumnArrays = kG.column_arrays, kColumnBytes = kG.column_bytes();
  // A warp's staging: 16 rows of kStoreColumns columns, swizzled by their width; and the same of
  // the second result, of two store tiles.
  static constexpr int kStoreColumns = kG.store_columns(), kStoreTiles = kG.store_tiles();
  static constexpr int kStores = kG.stores(), kStoreBuffers = kG.store_buffers();
  static constexpr int kStoreRowBytes = kG.store_row_bytes(), kStoreBytes = kG.store_bytes();
  static constexpr int kStagingBytes = kStoreBuffers * kStoreBytes;
  static constexpr int kSecondBuffers = GemmSm90::kSecondBuffers;
  static constexpr int kSecondBytes = kG.second_bytes();
  static constexpr int kSecondStoreBytes = kSecondBytes / kSecondBuffers;
  // Means and deviations of a tile's rows, merged from moments, for this tile and the next.
  static constexpr int kMomentsWritten = kG.moments, kMerged = kG.merged;

  static constexpr int kStagingOffset = kG.staging_offset();
  static constexpr int kSecondOffset = kG.second_offset();
  static constexpr int kColumnOffset = kG.column_offset();
  static constexpr int kMergedOffset = kG.merged_offset();

  static_assert(C::kOutput == C::kElement || C::kOutput == 2,
                "the result must be of the type of x or fp32");
  static_assert(!kTwoResults || (!C::kRowMap && kMomentsWritten == 0),
                "kAux: a second result is stored beside one without gaps and moments");
  static_assert(C::kDerivative == 0 || (C::kOutput != 2 && kCopiedResidual),
                "kDerivative: pre comes by the way of a residual");
  static_assert(C::kMomentsGiven == 0 || C::kNorm == 1,
                "kMomentsGiven: moments are for a LayerNorm");
  static_assert(kColumnArrays == int(kSums) + int(kBiases) + int(kScales),
                "the geometry must know which numbers a tile's columns have");
};

}  // namespace vitune
