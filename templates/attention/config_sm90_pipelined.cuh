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

// Shared memory for rows of a 16-bit bias (bias_tiles.cuh). Whole rows lie one behind the other,
// after what their first sixteen bytes have before them. Steps of kWidth keys lie in pieces of 16
// bytes, one more where rows may begin inside of one; rows begin an odd number of pieces apart, so
// that neighbours are in other banks. Threads read on to the next 16 keys, those of spare rows to
// the next 64, and use none of that; it is within the tile.
template <class C, bool kWhole, int kCount, int kKeyCount>
struct BiasRowsTile {
  static constexpr bool kOneRow = C::kBiasOneRow;
  static constexpr int kRows = kOneRow ? 1 : kCount, kWidth = kKeyCount;
  static constexpr int kPieces = ceil_div(kWidth, 8) + !C::kBiasAligned;
  static constexpr int kPitch = kOneRow ? 0 : kWhole ? 2 * C::kKeys : (kPieces | 1) * 16;
  static constexpr int kCopiedBytes =
      kWhole ? ceil_div(2 * C::kKeys * kRows + 14, 16) * 16 : kRows * kPitch;
  static constexpr int kKeptBytes = C::kBiasInRegisters ? ceil_div(C::kKeys, 16) * 32 * kRows : 0;
  static constexpr int kAtOnce = kCount < kGroupRows ? 64 : 16;
  static constexpr int kReadKeys = ceil_div(kWhole ? C::kKeys : kWidth, kAtOnce) * kAtOnce;
  static constexpr int kReadBytes = (kRows - 1) * kPitch + 14 + 2 * kReadKeys;
  static constexpr int kBytes =
      ceil_div(max_of(kReadBytes, max_of(kCopiedBytes, kKeptBytes)), 128) * 128;
};

template <class C>
struct PipelinedTraits : GroupFacts<C> {
  using F = GroupFacts<C>;
  using typename F::Keys;
  using typename F::KeyTile;
  using typename F::QueryTile;
  using typename F::Rows;
  using typename F::ValueTile;
  static constexpr bool kTensorCopies = C::kProducer == 2;
  // True if two of the copying warps bring the bias; keys stay in their order then.
  static constexpr bool kBiasTiles = kTensorCopies && C::kBias != 0;
  static constexpr bool kPermuted = F::kPermuted && !kTensorCopies;
  // How they bring it (bias_copies.cuh). A box has at most 256 keys, and all tiles the same number.
  static constexpr int kBiasWidth =
      C::kResident && Keys::kCount == 1 ? Keys::kTailWidth : C::kBlockN;
  static constexpr bool kBiasBoxes = kBiasTiles && C::kBiasAligned && !C::kBiasOneRow &&
                                     !C::kBiasInRegisters && kBiasWidth <= 248 &&
                                     (!C::kResident || (!C::kBiasWholeRows && C::kSpareRows == 0));
  static constexpr int kBiasBoxRows = C::kSpareRows > 0 ? 8 : kGroupRows;
  static constexpr bool kWholeRows = C::kBiasWholeRows && !kBiasBoxes;
  static constexpr int kHeadGroups = F::kGroups;
  static constexpr int kBlockM = F::kGroups * kGroupRows;
  // One more copies, and another one takes spare rows. A warpgroup that computes alone reads tiles
  // in the order in which they are copied: a single warp can bring them all (lone_copier.cuh), and
  // its SM has room for more CTAs.
  static constexpr int kAllGroups = F::kGroups + 1 + (C::kSpareRows > 0);
  static constexpr bool kLoneCopier = kTensorCopies && F::kGroups == 1 && C::kSpareRows == 0 &&
                                      (C::kBias == 0 || C::kBiasWholeRows);
  static constexpr int kThreads =
      kLoneCopier ? kGroupThreads + kWarpSize : kAllGroups * kGroupThreads;

  // Width of the last step. With a bias or mask keys are dealt out within sixteen, over the tile.
  static constexpr int kTailWidth = kPermuted && !C::kResident && Keys::kTailWidth < C::kBlockN
                                        ? ceil_div(Keys::kTailWidth, 16) * 16
                                        : Keys::kTailWidth;

  // Arrivals at a tile's barrier: two warps load keys and queries, two the values; with the
  // accelerator a thread each.
  static constexpr int kCopyThreads = kTensorCopies ? 1 : 2 * kWarpSize;
  static constexpr int kBiasThreads = 2 * kWarpSize;
  static constexpr bool kThreadsCopyBias = kBiasTiles && !kWholeRows && !kBiasBoxes;

  // With several steps per resident tile a warpgroup could wait for its turn while another one
  // waits for the next head, whose tile the first has yet to give back.
  static constexpr bool kTakesTurns = F::kGroups > 1 && (!C::kResident || Keys::kCount == 1);

  // Shared memory: kStages tiles of keys, as many of values, query tiles; two query tiles, a tile
  // of weights and the warps' maxima of spare rows; the bias of a step for each computing warpgroup
  // and for spare rows; a staging tile per computing warpgroup for its output; barriers.
  static constexpr int kRing = C::kStages;
  static constexpr int kQuerySlots =
      C::kResident ? max_of(C::kStages / F::kGroups, 1) * F::kGroups : F::kGroups;
  static constexpr int kStagingBytes = kGroupRows * Rows::kPitch;
  static constexpr int kBiasSlots = kBiasTiles ? F::kGroups + (C::kSpareRows > 0) : 0;
  static constexpr int kBarriers = 4 * kRing + 2 * kQuerySlots + F::kGroups + 2 * kBiasSlots;
  static constexpr int kRingBytes =
      kRing * (KeyTile::kBytes + ValueTile::kBytes) + kQuerySlots * QueryTile::kBytes;
  using SpareQueryTile = PanelTile<C::kHeadDim, C::kSpareRows, C::kSwizzle>;
  using SpareWeightTile = PanelTile<ceil_div(F::kKeyRows, 64) * 64, C::kSpareRows, 128>;
  static constexpr int kSpareExchange = 4 * C::kSpareRows * 4;  // a value per warp and row
  static constexpr int kSpareOffset = C::kSpareRows > 0 ? ceil_div(kRingBytes, 1024) * 1024
                                                        : kRingBytes;
  static constexpr int kSpareBytes =
      C::kSpareRows > 0 ? SpareWeightTile::kBytes + 2 * SpareQueryTile::kBytes + kSpareExchange : 0;
  using BiasTile = BiasRowsTile<C, kWholeRows, kGroupRows, kBiasWidth>;
  using SpareBiasTile =
      BiasRowsTile<C, kWholeRows, C::kSpareRows, C::kResident ? F::kKeyRows : C::kBlockN>;
  // True if a tile has all that a work item needs.
  static constexpr bool kBiasPerItem = kBiasTiles && (kWholeRows || Keys::kCount == 1);
  static constexpr bool kKeepsBias = kBiasTiles && C::kBiasInRegisters;
  static constexpr int kBiasOffset = kSpareOffset + kSpareBytes;
  static constexpr int kBiasBytes =
      !kBiasTiles ? 0
                  : F::kGroups * BiasTile::kBytes + (C::kSpareRows > 0 ? SpareBiasTile::kBytes : 0);
  static constexpr int kTileBytes = kBiasOffset + kBiasBytes + F::kGroups * kStagingBytes;
  static constexpr int kBytes = ceil_div(kTileBytes + 8 * kBarriers, 1024) * 1024;

  // Registers: a thread starts with what __launch_bounds__ leaves; the copying warpgroup gives up
  // most of its own, and so does the one for spare rows.
  static constexpr bool kTradesRegisters = F::kGroups > 1;
  static constexpr int kEntryRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kAllRegisters = kEntryRegisters * kAllGroups;
  // A product's operands must fit into what a thread starts with (ptxas 13.0, C7602).
  static constexpr int kProductColumns = min_of(256, (kEntryRegisters - 26) / 4 * 8);
  static constexpr bool kThreadsCopy = !kTensorCopies || kThreadsCopyBias;
  static constexpr int kCopyRegisters = !kThreadsCopy                          ? 24
                                        : F::kGroups == 2 || C::kSpareRows > 0 ? 40
                                                                               : 32;
  static constexpr int kSpareRegisters = C::kSpareRows == 0 ? 0 : F::kGroups == 2 ? 72 : 48;
  static constexpr int kComputeRegisters =
      (kAllRegisters - kCopyRegisters - kSpareRegisters) / F::kGroups / 8 * 8;

  static_assert(Keys::kConstant, "kProducer needs a constant token count: set kKeys");
  static_assert(C::kPersistent && C::kHeadsPerCta == 1 && C::kRowSplit == 1,
                "kProducer goes with kPersistent = 1, kHeadsPerCta = 1 and kRowSplit = 1");
  static_assert(!C::kEvenItems || (!C::kResident && !C::kCausal && !C::kBiasInRegisters),
                "kEvenItems goes with kResident = 0, kBiasInRegisters = 0 and no causal mask");
  static_assert(C::kMinCtas == 1 || !kTradesRegisters,
                "kProducer with several warpgroups takes the whole SM: kMinCtas must be 1");
  static_assert(C::kCopyBytes >= 4, "kProducer needs asynchronous copies: kCopyBytes 4 or more");
  static_assert(!kTensorCopies || (C::kCopyBytes == 16 && !C::kMask && C::kBias != 1 &&
                                   (C::kBias == 0 || C::kBiasVector > 0)),
                "kProducer = 2 needs 16-byte alignment, no mask, and a bias of 16 bits whose keys "
                "are contiguous");
  static_assert(C::kSpareRows % 8 == 0 && C::kSpareRows <= 32 &&
                    (C::kSpareRows == 0 || (kTensorCopies && !C::kCausal)),
                "kSpareRows is 0 to 32 in steps of 8, with kProducer = 2 and no causal mask");
  static_assert(!kBiasBoxes || kBiasOffset % 128 == 0, "boxes begin at multiples of 128 bytes");
  static_assert(!kBiasTiles || !C::kBiasOneRow || C::kBiasWholeRows,
                "kBiasOneRow goes with kBiasWholeRows");
  static_assert(!C::kBiasInRegisters ||
                    (kKeepsBias && C::kBiasWholeRows && !C::kBiasOneRow && !C::kCausal),
                "kProducer keeps a bias (kBiasInRegisters) of whole rows only, with kProducer = 2 "
                "and no causal mask");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
