// templates/linear_weight_grad/config_sm90.cuh -- What a generated Config of the family sm90 must
// say, and what follows from it.
//
// Facts of the problem: those of config_sm80.cuh.
// Tunables:
//   kBlockM, kBlockN  tile of dw
//   kStages      slots of the ring that dy and x pass through, 64 rows of each in them
//   kGroups      warpgroups that compute, 1 to 3: each has as many rows of a tile
//   kPair        1, 2 = two CTAs of a cluster work on neighbouring tiles and share an operand:
//                neighbours along k share dy, along n share x; 0 = no clusters
// and kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic
// shared memory, checked against the layout. How the parts of the rows are cut is told at launch.
#pragma once

#include "linear/ring_sm90.cuh"
#include "linear_weight_grad/params.cuh"
#include "linear_weight_grad/sm90_params.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <class C>
struct WeightGradSm90Traits : C {
  static constexpr int kCluster = C::kPair > 0 ? 2 : 1;
  static constexpr int kThreads = (C::kGroups + 1) * kGroupThreads;
  static constexpr int kRowBlocks = C::kBlockM / C::kGroups / 64;  // products of a warpgroup

  // A slot: panels of 64 columns of dy, then those of x; 64 rows each.
  static constexpr int kDepth = 64;
  static constexpr int kPanelBytes = kDepth * 128;
  static constexpr int kDyBytes = C::kBlockM / 64 * kPanelBytes;
  static constexpr int kStageBytes = kDyBytes + C::kBlockN / 64 * kPanelBytes;
  // Rows of the boxes of dy and x: of an operand that a pair shares each CTA copies half.
  static constexpr int kDyBoxRows = kDepth / (C::kPair == 1 ? 2 : 1);
  static constexpr int kXBoxRows = kDepth / (C::kPair == 2 ? 2 : 1);

  // Behind the ring, eight rows of 64 ones.
  static constexpr int kOnesOffset = C::kStages * kStageBytes;
  static constexpr int kOnesBytes = C::kBias ? 8 * 128 : 0;
  static constexpr int kBarrierOffset = kOnesOffset + kOnesBytes;
  static constexpr int kBytes = kBarrierOffset + 2 * C::kStages * 8;

  // 65,536 registers of an SM, dealt out to threads by eights and then again by warpgroups.
  static constexpr bool kTradesRegisters = C::kGroups > 1;
  static constexpr int kComputeRegisters = C::kGroups == 3 ? 160 : 240;
  static constexpr int kCopyRegisters = C::kGroups == 3 ? 32 : 24;

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kVector >= 2, "k must be a multiple of 2");
  static_assert(C::kGroups >= 1 && C::kGroups <= 3, "kGroups must be 1 to 3");
  static_assert(C::kPair >= 0 && C::kPair <= 2, "kPair must be 0 to 2");
  static_assert(C::kBlockM % (64 * C::kGroups) == 0 && C::kBlockM <= 256,
                "kBlockM must be 64 rows for each warpgroup, or multiples, and at most 256");
  static_assert(C::kBlockN % 64 == 0 && C::kBlockN >= 64 && C::kBlockN <= 256,
                "kBlockN must be 64 to 256 in steps of 64");
  static_assert(kRowBlocks * C::kBlockN <= (C::kGroups == 3 ? 192 : 384),
                "a thread has at most 192 sums, 96 where three warpgroups compute");
  static_assert(C::kStages >= 2, "kStages must be at least 2");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
