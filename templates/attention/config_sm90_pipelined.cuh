// templates/attention/config_sm90_pipelined.cuh -- What follows from a Config with kProducer.
//
// kWarps are the warps that compute whole blocks of rows.
#pragma once

#include "attention/config_sm90.cuh"

namespace vitune {

// Rows of a TMA box: at most 256, a multiple of 8, the same for all boxes of a tile.
__host__ __device__ constexpr int box_rows(int rows) {
  int boxes = ceil_div(rows, 256);
  while (rows % (8 * boxes) != 0) ++boxes;
  return rows / boxes;
}

// Shared memory for rows of a 16-bit bias (bias_sm90.cuh). Whole rows follow each other, after the
// bytes before them in their first sixteen. Steps of kWidth keys lie in chunks of 16 bytes, one
// more where rows may begin inside a chunk; rows begin an odd number of chunks apart, so that
// neighbours are in other banks. Threads read on to the next 16 keys, those of the swap-AB tail to
// the next 64, and use none of them; they are within the tile.
template <class C, bool kWhole, int kCount, int kKeyCount>
struct BiasRowsTile {
  static constexpr bool kOneRow = C::kBiasOneRow;
  static constexpr int kRows = kOneRow ? 1 : kCount, kWidth = kKeyCount;
  static constexpr int kChunks = ceil_div(kWidth, 8) + !C::kBiasAligned;
  static constexpr int kPitch = kOneRow ? 0 : kWhole ? 2 * C::kKeys : (kChunks | 1) * 16;
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
  // True if two of the producer warps bring the bias; keys stay in their order then.
  static constexpr bool kBiasTiles = kTensorCopies && C::kBias != 0;
  static constexpr bool kPermuted = F::kPermuted && !kTensorCopies;
  // How they bring it (bias_producer_sm90.cuh). A box has at most 256 keys, and all tiles the same
  // number.
  static constexpr int kBiasWidth =
      C::kResident && Keys::kCount == 1 ? Keys::kTailWidth : C::kBlockN;
  static constexpr bool kBiasBoxes = kBiasTiles && C::kBiasAligned && !C::kBiasOneRow &&
                                     !C::kBiasInRegisters && kBiasWidth <= 248 &&
                                     (!C::kResident || (!C::kBiasWholeRows && C::kSwapAbRows == 0));
  static constexpr int kBiasBoxRows = C::kSwapAbRows > 0 ? 8 : kGroupRows;
  static constexpr bool kWholeRows = C::kBiasWholeRows && !kBiasBoxes;
  static constexpr int kHeadGroups = F::kGroups;
  static constexpr int kBlockM = F::kGroups * kGroupRows;
  // One more warpgroup produces, and another one takes the swap-AB tail. A warpgroup that computes
  // alone reads tiles in the order in which they are copied: a single producer warp can bring them
  // all (producer_sm90.cuh), and the SM has room for more CTAs.
  static constexpr int kAllGroups = F::kGroups + 1 + (C::kSwapAbRows > 0);
  static constexpr bool kSingleProducer = kTensorCopies && F::kGroups == 1 && C::kSwapAbRows == 0 &&
                                          (C::kBias == 0 || C::kBiasWholeRows);
  static constexpr int kThreads =
      kSingleProducer ? kGroupThreads + kWarpSize : kAllGroups * kGroupThreads;

  // Width of the last step. With a bias or mask keys are permuted within sixteen, over the tile.
  static constexpr int kTailWidth = kPermuted && !C::kResident && Keys::kTailWidth < C::kBlockN
                                        ? ceil_div(Keys::kTailWidth, 16) * 16
                                        : Keys::kTailWidth;

  // Arrivals at a tile's barrier: two warps load keys and queries, two the values; with TMA a
  // thread each.
  static constexpr int kCopyThreads = kTensorCopies ? 1 : 2 * kWarpSize;
  static constexpr int kBiasThreads = 2 * kWarpSize;
  static constexpr bool kThreadsCopyBias = kBiasTiles && !kWholeRows && !kBiasBoxes;

  // Warpgroups issue Q K' one after the other. With several steps per resident tile one could wait
  // for that while another one waits for the next head, whose tile the first has yet to release.
  static constexpr bool kPingPong = F::kGroups > 1 && (!C::kResident || Keys::kCount == 1);

  // Shared memory: kStages tiles of keys, as many of values, query tiles; for the swap-AB tail
  // two query tiles, a tile of P and the warps' maxima; the bias of a step for each consumer
  // warpgroup and for the tail; a staging tile per consumer warpgroup for its output; barriers.
  static constexpr int kRing = C::kStages;
  static constexpr int kQuerySlots =
      C::kResident ? max_of(C::kStages / F::kGroups, 1) * F::kGroups : F::kGroups;
  static constexpr int kStagingBytes = kGroupRows * Rows::kPitch;
  static constexpr int kBiasSlots = kBiasTiles ? F::kGroups + (C::kSwapAbRows > 0) : 0;
  static constexpr int kBarriers = 4 * kRing + 2 * kQuerySlots + F::kGroups + 2 * kBiasSlots;
  static constexpr int kRingBytes =
      kRing * (KeyTile::kBytes + ValueTile::kBytes) + kQuerySlots * QueryTile::kBytes;
  using SwapAbQueryTile = SmemTile<C::kHeadDim, C::kSwapAbRows, C::kSwizzle>;
  using SwapAbWeightTile = SmemTile<ceil_div(F::kKeyRows, 64) * 64, C::kSwapAbRows, 128>;
  static constexpr int kSwapAbExchange = 4 * C::kSwapAbRows * 4;  // a value per warp and row
  static constexpr int kSwapAbOffset = C::kSwapAbRows > 0 ? ceil_div(kRingBytes, 1024) * 1024
                                                          : kRingBytes;
  static constexpr int kSwapAbBytes =
      C::kSwapAbRows > 0 ? SwapAbWeightTile::kBytes + 2 * SwapAbQueryTile::kBytes + kSwapAbExchange
                         : 0;
  using BiasTile = BiasRowsTile<C, kWholeRows, kGroupRows, kBiasWidth>;
  using SwapAbBiasTile =
      BiasRowsTile<C, kWholeRows, C::kSwapAbRows, C::kResident ? F::kKeyRows : C::kBlockN>;
  // True if a tile has all that a work tile needs.
  static constexpr bool kBiasPerItem = kBiasTiles && (kWholeRows || Keys::kCount == 1);
  static constexpr bool kKeepsBias = kBiasTiles && C::kBiasInRegisters;
  static constexpr int kBiasOffset = kSwapAbOffset + kSwapAbBytes;
  static constexpr int kBiasBytes =
      !kBiasTiles
          ? 0
          : F::kGroups * BiasTile::kBytes + (C::kSwapAbRows > 0 ? SwapAbBiasTile::kBytes : 0);
  static constexpr int kTileBytes = kBiasOffset + kBiasBytes + F::kGroups * kStagingBytes;
  static constexpr int kBytes = ceil_div(kTileBytes + 8 * kBarriers, 1024) * 1024;

  // Registers: a thread starts with what __launch_bounds__ leaves; the producers give up most of
  // their own, and so does the warpgroup for the tail.
  static constexpr bool kTradesRegisters = F::kGroups > 1;
  static constexpr int kEntryRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kAllRegisters = kEntryRegisters * kAllGroups;
  // A product's operands must fit into what a thread starts with (ptxas 13.0, C7602).
  static constexpr int kProductColumns = min_of(256, (kEntryRegisters - 26) / 4 * 8);
  static constexpr bool kThreadsCopy = !kTensorCopies || kThreadsCopyBias;
  static constexpr int kCopyRegisters = !kThreadsCopy                           ? 24
                                        : F::kGroups == 2 || C::kSwapAbRows > 0 ? 40
                                                                                : 32;
  static constexpr int kSwapAbRegisters = C::kSwapAbRows == 0 ? 0 : F::kGroups == 2 ? 72 : 48;
  static constexpr int kComputeRegisters =
      (kAllRegisters - kCopyRegisters - kSwapAbRegisters) / F::kGroups / 8 * 8;

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
  static_assert(C::kSwapAbRows % 8 == 0 && C::kSwapAbRows <= 32 &&
                    (C::kSwapAbRows == 0 || (kTensorCopies && !C::kCausal)),
                "kSwapAbRows is 0 to 32 in steps of 8, with kProducer = 2 and no causal mask");
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
