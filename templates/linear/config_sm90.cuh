// templates/linear/config_sm90.cuh -- What a generated Config of the family sm90 must say, and what
// follows from it.
//
// Facts of the problem: those of config_sm80.cuh, and
//   kRowMap      the result's rows lie in periods with gaps between them
//   kMomentsWritten  columns of a block of the result, whose moments are written; 0 = none
//   kMomentsGiven    of x, where they stand for kNorm's means and deviations; 0 = none
//   kMostGiven       blocks of a row of x, at most
//   kEps             where they are given: what the variance is added
// Tunables:
//   kBlockM, kBlockN  tile of the result
//   kStages      slots of the ring that x and w pass through, 64 of k in each
//   kGroups      warpgroups that compute, 1 to 3
//   kSchedule    how they share the work:
//                  0  all share a tile's rows
//                  1  ping-pong: each has tiles of its own and they take turns
//   kPair        1, 2 = two CTAs of a cluster work on neighbouring tiles and share an operand:
//                neighbours along n share x, along m share w; 0 = no clusters
//   kWidePanels  64 columns are staged and stored at once: whole lines of 128 bytes, half as many
//                fences, more shared memory; else 32, or 16. Of fp32 32 columns are such lines
//   kLead        steps of 64 by which a warpgroup begins a shared tile before the next one does,
//                so that one's epilogue falls in the products of the others; 0 = all at once
// and kStoreBuffers, in which a warp stages what it stores (and finds what is added to it), and
// kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic shared
// memory, checked against the layout.
#pragma once

#include "linear/params.cuh"
#include "linear/sm90_params.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kBlockK = 64;         // a swizzled panel of 128 bytes

template <bool kTwoResults>
struct LinearMaps {
  using Type = LinearTensorMaps;
};
template <>
struct LinearMaps<true> {
  using Type = LinearTwoResultMaps;
};

// Everything about a kernel that follows from its Config, with the rules it must obey.
template <class C>
struct LinearTraits : C {
  static constexpr bool kPingPong = C::kSchedule == 1;
  static constexpr int kCluster = C::kPair > 0 ? 2 : 1;
  static constexpr bool kPairAlongM = C::kPair == 2;
  static constexpr int kThreads = (C::kGroups + 1) * kGroupThreads;
  static constexpr int kGroupRows = kPingPong ? C::kBlockM : C::kBlockM / C::kGroups;
  static constexpr int kRowBlocks = kGroupRows / 64;  // products of a warpgroup per 16 of k

  // A result or a residual of fp32 is copied as twice as many columns of 16 bits.
  static constexpr int kUnits = C::kOutput == 2 ? 2 : 1;
  // Written beside the result, of the type of x: the sums before the activation, or of pre, after.
  static constexpr bool kTwoResults = C::kAux;
  using Maps = typename LinearMaps<kTwoResults>::Type;

  // A residual's rows repeat and are read where they are added, or there is one for each of the
  // result's. Then each warp copies what it adds to where it stages the sum: in ping-pong, whose
  // ring belongs to the other warpgroup's tile meanwhile, and where a tile is one panel, which is
  // asked for before its products. Else it comes by the ring, which has nothing else to do behind
  // a tile's last step.
  static constexpr bool kCopiedResidual = C::kResidual && !C::kPeriodicResidual;
  static constexpr bool kReadResidual = C::kResidual && C::kPeriodicResidual;

  // A slot: rows of x, then rows of w. w as [k, n] lies there in panels of 64 columns by all of
  // the slot's k, across whose rows products take it.
  static constexpr int kXBytes = C::kBlockM * kBlockK * 2;
  static constexpr int kStageBytes = kXBytes + C::kBlockN * kBlockK * 2;
  static constexpr int kRingBytes = C::kStages * kStageBytes;
  // Columns that a warp stages and stores at once, and how often it does so in a tile. In the ring
  // a residual has panels of as many columns by kBlockM rows.
  static constexpr int kStoreColumns = C::kWidePanels ? 64 : C::kBlockN % 32 == 0 ? 32 : 16;
  static constexpr int kPanels = C::kBlockN / kStoreColumns;
  static constexpr int kStores = kPanels * kRowBlocks;
  static constexpr bool kStagedResidual = kCopiedResidual && (kPingPong || kStores == 1);
  static constexpr bool kRingResidual = kCopiedResidual && !kStagedResidual;
  static constexpr int kPanelBytes = C::kBlockM * kStoreColumns * 2 * kUnits;
  static constexpr int kSlotPanels = min_of(kStageBytes / kPanelBytes, kPanels);
  static constexpr int kResidualSlots = kRingResidual ? ceil_div(kPanels, kSlotPanels) : 0;
  // Rows of the boxes of x and w: of an operand that a pair shares each CTA copies half.
  static constexpr int kXBoxRows = C::kBlockM / (C::kPair == 1 ? 2 : 1);
  static constexpr int kWBoxRows =
      (C::kTransposed ? kBlockK : C::kBlockN) / (C::kPair == 2 ? 2 : 1);
  static constexpr int kWPanelBytes = kBlockK * 128;

  // What a tile's columns have of their own, in fp32, by pairs of columns: sums of w, bias, scale.
  static constexpr bool kSums = C::kNorm == 1, kBiases = C::kBias, kScales = C::kScale;
  static constexpr int kColumnArrays = int(kSums) + int(kBiases) + int(kScales);
  static constexpr int kColumnBytes = C::kBlockN * 4 * kColumnArrays;
  // A warp's staging: 16 rows of kStoreColumns columns, swizzled by their width; and the same of
  // the second result, of two panels.
  static constexpr int kStoreRowBytes = kStoreColumns * 2 * kUnits;
  static constexpr int kStoreBytes = 16 * kStoreRowBytes;
  static constexpr int kStagingBytes = C::kStoreBuffers * kStoreBytes;
  static constexpr int kSecondBuffers = 2;
  static constexpr int kSecondStoreBytes = 16 * kStoreColumns * 2;
  static constexpr int kSecondBytes = kTwoResults ? kSecondBuffers * kSecondStoreBytes : 0;
  // Means and deviations of a tile's rows, merged from moments, for this tile and the next.
  static constexpr int kMerged = C::kMomentsGiven > 0 ? 2 : 0;
  static constexpr int kMergedBytes = kMerged * C::kBlockM * 8;

  static constexpr int kStagingOffset = kRingBytes;
  static constexpr int kSecondOffset = kStagingOffset + C::kGroups * 4 * kStagingBytes;
  static constexpr int kColumnOffset = kSecondOffset + C::kGroups * 4 * kSecondBytes;
  static constexpr int kMergedOffset = kColumnOffset + C::kGroups * kColumnBytes;
  static constexpr int kBarrierOffset = kMergedOffset + kMergedBytes;
  static constexpr int kResidualBarriers = kStagedResidual ? C::kGroups * 4 * C::kStoreBuffers : 0;
  static constexpr int kBarriers = 2 * C::kStages + C::kGroups + 2 * kMerged + kResidualBarriers;
  static constexpr int kBytes = kBarrierOffset + 8 * kBarriers;

  // 65,536 registers of an SM, dealt out to threads by eights and then again by warpgroups.
  static constexpr bool kTradesRegisters = C::kGroups > 1;
  static constexpr int kComputeRegisters = C::kGroups == 3 ? 160 : 240;
  static constexpr int kCopyRegisters = C::kGroups == 3 ? 32 : 24;
  static_assert(!kTradesRegisters || C::kGroups * kComputeRegisters + kCopyRegisters <=
                                         (C::kGroups + 1) * (65536 / kThreads / 8 * 8),
                "warpgroups ask for more registers than a CTA is given, and would wait for ever");

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kOutput == C::kElement || C::kOutput == 2,
                "the result must be of the type of x or fp32");
  static_assert(!C::kTransposed || C::kBlockN % 64 == 0,
                "kTransposed: kBlockN must be whole panels of 64 columns of w");
  static_assert(!kTwoResults || (!C::kRowMap && C::kMomentsWritten == 0),
                "kAux: a second result is stored beside one without gaps and moments");
  static_assert(C::kDerivative == 0 || (C::kOutput != 2 && kCopiedResidual),
                "kDerivative: pre comes by the way of a residual");
  static_assert(C::kGroups >= 1 && C::kGroups <= 3, "kGroups must be 1 to 3");
  static_assert(C::kSchedule == 0 || C::kSchedule == 1, "kSchedule must be 0 or 1");
  static_assert(C::kPair >= 0 && C::kPair <= 2, "kPair must be 0 to 2");
  static_assert(kPingPong ? C::kBlockM % 64 == 0 : C::kBlockM % (64 * C::kGroups) == 0,
                "kBlockM must be a multiple of 64 rows for each warpgroup that shares a tile");
  static_assert(C::kBlockM <= 256, "kBlockM must be at most 256");
  static_assert(C::kBlockN % 16 == 0 && C::kBlockN >= 16 && C::kBlockN <= 256,
                "kBlockN must be 16 to 256 in steps of 16");
  static_assert(kRowBlocks * C::kBlockN <= (C::kGroups == 3 ? 192 : 384),
                "a thread has at most 192 sums, 96 where three warpgroups compute");
  static_assert(C::kBlockN % kStoreColumns == 0, "kWidePanels: a tile must be whole panels");
  static_assert(kStoreRowBytes <= 128, "kWidePanels: rows of a panel have at most 128 bytes");
  static_assert(C::kStages >= 2, "kStages must be at least 2");
  static_assert(C::kLead >= 0 && C::kLead < C::kStages, "kLead must be less than kStages");
  static_assert(kXBoxRows % 8 == 0 && kWBoxRows % 8 == 0, "halves must be multiples of 8 rows");
  static_assert(!kPingPong || (C::kGroups > 1 && C::kLead == 0),
                "ping-pong needs several warpgroups, which begin when it is their turn");
  static_assert(!kRingResidual || kSlotPanels >= 1, "a slot must hold a panel of the residual");
  static_assert(C::kStoreBuffers >= min_of(2, kStores) && C::kStoreBuffers <= 32,
                "kStoreBuffers must be 2 to 32, or 1 for one store");
  static_assert(C::kMomentsGiven == 0 || C::kNorm == 1,
                "kMomentsGiven: moments are for a LayerNorm");
  static_assert(C::kLead == 0 || C::kGroups > 1, "kLead needs several warpgroups");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
