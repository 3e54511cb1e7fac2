// templates/packed_attention/config.cuh -- What a generated Config must say, and what follows.
//
// Facts of the problem (the generator derives them):
//   kElement        0 = fp16, 1 = bf16: type of q, k, v and out; sums are fp32
//   kCausal         1 = query i of a sequence of n queries and m keys sees key j if j <= i + m - n
//   kLse            also writes the log-sum-exp
//   kManySteps      some sequence has keys for more than two steps
// and kGeometry, a PackedGeometry of its tunables (geometry_streaming.cuh).
#pragma once

#include "attention/config.cuh"
#include "packed_attention/geometry_streaming.cuh"
#include "primitives/rules.cuh"

namespace vitune {

// The geometry under the names that attention/ has for its numbers, and its facts that packed rows
// have no use for.
template <class C>
struct PackedNumbers : C {
  static constexpr PackedGeometry kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, packed_rules().all)>::kValue);
  static constexpr int kHeadDim = kG.head_dim, kWarps = kG.warps, kRowTiles = kG.row_tiles;
  static constexpr int kBlockN = kG.block_n, kStages = kG.stages, kSwizzle = kG.swizzle;
  static constexpr int kMinCtas = kG.min_ctas;
  static constexpr bool kQueryInRegisters = kG.query_in_registers != 0;
  static constexpr bool kPersistent = kG.persistent != 0;
  static constexpr int kCtaThreads = kG.threads(), kSharedBytes = kG.shared_bytes();

  // An argument: each sequence has its own. Kernels with producer warps ask for a constant, of
  // which only follows that there are several steps.
  static constexpr int kKeys = kG.producer != 0 ? 2 * kG.block_n : 0;
  static constexpr int kProducer = kG.producer != 0;
  static constexpr int kCopyBytes = 16;
  static constexpr int kBias = 0, kBiasVector = 0, kMaskVector = 0;
  static constexpr bool kMask = false, kBiasAligned = false, kBiasOneRow = false;
  static constexpr bool kBiasWholeRows = false, kBiasInRegisters = false;
  static constexpr bool kResident = false, kEvenItems = false, kValuesFirst = false;
  static constexpr int kSwapAbRows = 0;
  static constexpr int kHeadsPerCta = 1, kRowSplit = 1, kKeySplit = 1;
};

// What packed rows change of Traits and its like: a sequence may have no keys, or fewer than
// queries under a causal mask; and rows behind its end, which decide nothing, may hold anything.
template <class Plain>
struct PackedTraits : Plain {
  static constexpr int kKeys = 0;
  static constexpr bool kMayBeEmpty = true;
  static constexpr bool kHoldsReference = false;
};

// Of a kernel that computes rows again whose weights outgrew fp32 (attention/softmax.cuh). Under a
// causal mask the first step may be one without any key of a row.
template <class Packed>
struct HeldTraits : Packed {
  static constexpr bool kHoldsReference =
      Packed::kElement == 1 && !Packed::kCausal && !Packed::kLse && Packed::kManySteps;
  static constexpr int kCopyRegisters = 40;  // threads that copy in two ways spill less
  static constexpr int kComputeRegisters =
      (Packed::kAllRegisters - kCopyRegisters) / Packed::kGroups / 8 * 8;
};

}  // namespace vitune
