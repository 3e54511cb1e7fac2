// benchmarks/lab/linear/config_sm90.cuh -- What a Config of a linear kernel must say, and what
// follows.
//
// Facts of the problem:
//   kElement       1 = bf16: type of x, w, the residual and y; sums are fp32
//   kNorm          1 = x is normalized by LayerNorm, folded into w, LinearRow and LinearColumns
//   kActivation    0 none, 1 exact GELU
//   kScale         1 = columns are multiplied by LinearColumns::factor
//   kResidual      1 = a matrix is added
//   kMoments       1 = also writes LinearMoments of y
// Tunables:
//   kBlockM, kBlockN  tile of y
//   kStages        slots of the ring that x and w pass through, 64 of k in each
//   kCluster       CTAs of a cluster, 1 or 2; two work on neighbouring tiles and share an operand
//   kPairAlongM    1 = those are neighbours along m and share w, 0 = along n and share x
//   kGroups        warpgroups that compute, 1 to 3
//   kPingPong      1 = each has tiles of its own and they take turns; 0 = they share each tile's
//                  rows
//   kLead          steps of 64 by which a warpgroup begins a shared tile before the next one does,
//                  so that one's epilogue falls in the products of the others; 0 = all at once
//   kAhead         > 0 = a tile's columns have two halves; that many steps of the next tile's first
//                  half run beside the second half's epilogue; k has at least as many
//   kStoreColumns  columns that a warp stages and stores at once: 32 or 64
//   kStoreBuffers  places for them: 1 or 2
//   kChecked       1 = waits that never end become an error of the launch
// and kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic
// shared memory, checked against the layout.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "linear/sm90_params.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kBlockK = 64;         // a swizzled panel of 128 bytes

// Everything about a kernel that follows from its Config, with the rules it must obey.
template <class C>
struct LinearTraits : C {
  static constexpr int kThreads = (C::kGroups + 1) * kGroupThreads;
  static constexpr int kGroupRows = C::kPingPong ? C::kBlockM : C::kBlockM / C::kGroups;
  static constexpr int kRowBlocks = kGroupRows / 64;  // products of a warpgroup per 16 of k

  // A slot: rows of x, then rows of w.
  static constexpr int kXBytes = C::kBlockM * kBlockK * 2;
  static constexpr int kStageBytes = kXBytes + C::kBlockN * kBlockK * 2;
  static constexpr int kRingBytes = C::kStages * kStageBytes;
  // The residual passes through the ring too, in panels of kStoreColumns columns by kBlockM rows.
  static constexpr int kPanels = C::kBlockN / C::kStoreColumns;
  static constexpr int kPanelBytes = C::kBlockM * C::kStoreColumns * 2;
  static constexpr int kSlotPanels = min_of(kStageBytes / kPanelBytes, kPanels);
  static constexpr int kResidualSlots = C::kResidual ? ceil_div(kPanels, kSlotPanels) : 0;
  // Rows of the boxes of x and w: of an operand that a pair shares each CTA copies half.
  static constexpr int kXBoxRows = C::kBlockM / (C::kPairAlongM ? 1 : C::kCluster);
  static constexpr int kWBoxRows = C::kBlockN / (C::kPairAlongM ? C::kCluster : 1);

  // A warp's staging: 16 rows of kStoreColumns columns, swizzled by their width.
  static constexpr int kStoreBytes = 16 * C::kStoreColumns * 2;
  static constexpr int kStagingBytes = C::kStoreBuffers * kStoreBytes;
  static constexpr int kColumnBytes = C::kBlockN / 2 * int(sizeof(LinearColumns));

  static constexpr int kStagingOffset = kRingBytes;
  static constexpr int kColumnOffset = kStagingOffset + C::kGroups * 4 * kStagingBytes;
  static constexpr int kBarrierOffset = kColumnOffset + C::kGroups * kColumnBytes;
  static constexpr int kBarriers = 2 * C::kStages + C::kGroups;
  static constexpr int kBytes = kBarrierOffset + 8 * kBarriers;

  // 65,536 registers of an SM, dealt out by warpgroups.
  static constexpr bool kTradesRegisters = C::kGroups > 1;
  static constexpr int kComputeRegisters = C::kGroups == 3 ? 160 : 240;
  static constexpr int kCopyRegisters = C::kGroups == 3 ? 32 : 24;

  static_assert(C::kElement == 1, "kElement must be 1 (bf16)");
  static_assert(C::kGroups >= 1 && C::kGroups <= 3, "kGroups must be 1 to 3");
  static_assert(C::kPingPong ? C::kBlockM % 64 == 0 : C::kBlockM % (64 * C::kGroups) == 0,
                "kBlockM must be a multiple of 64 rows for each warpgroup that shares a tile");
  static_assert(C::kBlockM <= 256, "kBlockM must be at most 256");
  static_assert(C::kBlockN % 32 == 0 && C::kBlockN >= 32 && C::kBlockN <= 256,
                "kBlockN must be 32 to 256 in steps of 32");
  static_assert(kRowBlocks * C::kBlockN <= 384, "a thread has at most 192 sums");
  static_assert(C::kStages >= 2, "kStages must be at least 2");
  static_assert(C::kLead >= 0 && C::kLead < C::kStages, "kLead must be less than kStages");
  static_assert(C::kCluster == 1 || C::kCluster == 2, "kCluster must be 1 or 2");
  static_assert(kXBoxRows % 8 == 0 && kWBoxRows % 8 == 0, "halves must be multiples of 8 rows");
  static_assert(!C::kPingPong || (C::kGroups > 1 && C::kLead == 0),
                "kPingPong needs several warpgroups, which begin when it is their turn");
  static_assert(C::kAhead == 0 ||
                    (!C::kPingPong && C::kLead == 0 && !C::kResidual && C::kAhead < C::kStages &&
                     kRowBlocks == 1 && C::kBlockN % (2 * C::kStoreColumns) == 0),
                "kAhead is for warpgroups that share tiles, 64 rows each, without a residual");
  static_assert(C::kStoreColumns == 32 || C::kStoreColumns == 64, "kStoreColumns must be 32 or 64");
  static_assert(C::kBlockN % C::kStoreColumns == 0, "kStoreColumns must divide kBlockN");
  static_assert(kSlotPanels >= 1, "a slot must hold a panel of the residual");
  static_assert(C::kStoreBuffers == 1 || C::kStoreBuffers == 2, "kStoreBuffers must be 1 or 2");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
