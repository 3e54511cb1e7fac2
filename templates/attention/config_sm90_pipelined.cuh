// templates/attention/config_sm90_pipelined.cuh -- What follows from a Config with kProducer.
//
// kWarps are the warps that compute whole blocks of rows.
#pragma once

#include "attention/config_sm90.cuh"

namespace vitune {

// Rows of a box of the tensor memory accelerator: at most 256, a multiple of 8, the same for all
// boxes of a tile.
__host__ __device__ constexpr int box_rows(int rows) {
  int boxes = ceil_div(rows, 256);
  while (rows % (8 * boxes) != 0) ++boxes;
  return rows / boxes;
}

template <class C>
struct PipelinedTraits : GroupFacts<C> {
  using F = GroupFacts<C>;
  using typename F::Keys;
  using typename F::KeyTile;
  using typename F::QueryTile;
  using typename F::Rows;
  using typename F::ValueTile;
  static constexpr bool kTensorCopies = C::kProducer == 2;
  static constexpr int kHeadGroups = F::kGroups;
  static constexpr int kBlockM = F::kGroups * kGroupRows;
  // One more copies, and another one takes spare rows.
  static constexpr int kAllGroups = F::kGroups + 1 + (C::kSpareRows > 0);
  static constexpr int kThreads = kAllGroups * kGroupThreads;

  // Width of the last step. With a bias or mask keys are dealt out within sixteen, over the tile.
  static constexpr int kTailWidth = F::kPermuted && !C::kResident && Keys::kTailWidth < C::kBlockN
                                        ? ceil_div(Keys::kTailWidth, 16) * 16
                                        : Keys::kTailWidth;

  // Arrivals at a tile's barrier: two warps load keys and queries, two the values; with the
  // accelerator a thread each.
  static constexpr int kCopyThreads = kTensorCopies ? 1 : 2 * kWarpSize;

  // With several steps per resident tile a warpgroup could wait for its turn while another one
  // waits for the next head, whose tile the first has yet to give back.
  static constexpr bool kTakesTurns = F::kGroups > 1 && (!C::kResident || Keys::kCount == 1);

  // Shared memory: kStages tiles of keys, as many of values, query tiles; two query tiles, a tile
  // of weights and the warps' maxima of spare rows; a staging tile per computing warpgroup for its
  // output; barriers.
  static constexpr int kRing = C::kStages;
  static constexpr int kQuerySlots =
      C::kResident ? max_of(C::kStages / F::kGroups, 1) * F::kGroups : F::kGroups;
  static constexpr int kStagingBytes = kGroupRows * Rows::kPitch;
  static constexpr int kBarriers = 4 * kRing + 2 * kQuerySlots + F::kGroups;
  static constexpr int kRingBytes =
      kRing * (KeyTile::kBytes + ValueTile::kBytes) + kQuerySlots * QueryTile::kBytes;
  using SpareQueryTile = PanelTile<C::kHeadDim, C::kSpareRows, C::kSwizzle>;
  using SpareWeightTile = PanelTile<ceil_div(F::kKeyRows, 64) * 64, C::kSpareRows, 128>;
  static constexpr int kSpareExchange = 4 * C::kSpareRows * 4;  // a value per warp and row
  static constexpr int kSpareOffset = C::kSpareRows > 0 ? ceil_div(kRingBytes, 1024) * 1024
                                                        : kRingBytes;
  static constexpr int kSpareBytes =
      C::kSpareRows > 0 ? SpareWeightTile::kBytes + 2 * SpareQueryTile::kBytes + kSpareExchange : 0;
  static constexpr int kTileBytes = kSpareOffset + kSpareBytes + F::kGroups * kStagingBytes;
  static constexpr int kBytes = ceil_div(kTileBytes + 8 * kBarriers, 1024) * 1024;

  // Registers: a thread starts with what __launch_bounds__ leaves; the copying warpgroup gives up
  // most of its own, and so does the one for spare rows.
  static constexpr bool kTradesRegisters = F::kGroups > 1;
  static constexpr int kEntryRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kAllRegisters = kEntryRegisters * kAllGroups;
  // A product's operands must fit into what a thread starts with (ptxas 13.0, C7602).
  static constexpr int kProductColumns = min_of(256, (kEntryRegisters - 26) / 4 * 8);
  static constexpr int kCopyRegisters = kTensorCopies ? 24 : F::kGroups == 2 ? 40 : 32;
  static constexpr int kSpareRegisters = C::kSpareRows == 0 ? 0 : F::kGroups == 2 ? 72 : 48;
  static constexpr int kComputeRegisters =
      (kAllRegisters - kCopyRegisters - kSpareRegisters) / F::kGroups / 8 * 8;

  static_assert(Keys::kConstant, "kProducer needs a constant token count: set kKeys");
  static_assert(C::kPersistent && C::kHeadsPerCta == 1 && C::kRowSplit == 1,
                "kProducer goes with kPersistent = 1, kHeadsPerCta = 1 and kRowSplit = 1");
  static_assert(C::kMinCtas == 1 || !kTradesRegisters,
                "kProducer with several warpgroups takes the whole SM: kMinCtas must be 1");
  static_assert(C::kCopyBytes >= 4, "kProducer needs asynchronous copies: kCopyBytes 4 or more");
  static_assert(!kTensorCopies || (C::kCopyBytes == 16 && !F::kPermuted),
                "kProducer = 2 needs 16-byte alignment, and no bias or mask");
  static_assert(C::kSpareRows % 8 == 0 && C::kSpareRows <= 32 &&
                    (C::kSpareRows == 0 || (kTensorCopies && !C::kCausal)),
                "kSpareRows is 0 to 32 in steps of 8, with kProducer = 2 and no causal mask");
  static_assert(!C::kBiasInRegisters, "kProducer does not keep a bias: kBiasInRegisters must be 0");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
