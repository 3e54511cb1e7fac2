// templates/attention/config_sm90_pipelined.cuh -- What follows from a Config with kProducer.
//
// kWarps are the warps that compute; a warpgroup more does nothing but copy.
#pragma once

#include "attention/config_sm90.cuh"

namespace vitune {

template <class C>
struct PipelinedTraits : GroupFacts<C> {
  using F = GroupFacts<C>;
  using typename F::Keys;
  using typename F::KeyTile;
  using typename F::QueryTile;
  using typename F::Rows;
  using typename F::ValueTile;
  static constexpr int kHeadGroups = F::kGroups;
  static constexpr int kBlockM = F::kGroups * kGroupRows;
  static constexpr int kThreads = (F::kGroups + 1) * kGroupThreads;

  // Of the copying warps two load keys and queries, two the values.
  static constexpr int kCopyThreads = 2 * kWarpSize;

  // With several steps per resident tile a warpgroup could wait for its turn while another one
  // waits for the next head, whose tile the first has yet to give back.
  static constexpr bool kTakesTurns = F::kGroups > 1 && (!C::kResident || Keys::kCount == 1);

  // Shared memory: kStages tiles of keys, as many of values, query tiles, a staging tile per
  // computing warpgroup for its output, barriers.
  static constexpr int kRing = C::kStages;
  static constexpr int kQuerySlots = C::kResident ? max_of(F::kGroups, C::kStages) : F::kGroups;
  static constexpr int kStagingBytes = kGroupRows * Rows::kPitch;
  static constexpr int kBarriers = 4 * kRing + 2 * kQuerySlots + F::kGroups;
  static constexpr int kTileBytes = kRing * (KeyTile::kBytes + ValueTile::kBytes) +
                                    kQuerySlots * QueryTile::kBytes + F::kGroups * kStagingBytes;
  static constexpr int kBytes = ceil_div(kTileBytes + 8 * kBarriers, 1024) * 1024;

  // Registers: a thread starts with what __launch_bounds__ leaves; the copying warpgroup gives up
  // most of its own.
  static constexpr bool kTradesRegisters = F::kGroups > 1;
  static constexpr int kEntryRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kCopyRegisters = F::kGroups == 2 ? 40 : 32;
  static constexpr int kComputeRegisters =
      (kEntryRegisters * (F::kGroups + 1) - kCopyRegisters) / F::kGroups / 8 * 8;

  static_assert(Keys::kConstant, "kProducer needs a constant token count: set kKeys");
  static_assert(C::kPersistent && C::kHeadsPerCta == 1 && C::kRowSplit == 1,
                "kProducer goes with kPersistent = 1, kHeadsPerCta = 1 and kRowSplit = 1");
  static_assert(C::kMinCtas == 1 || !kTradesRegisters,
                "kProducer with several warpgroups takes the whole SM: kMinCtas must be 1");
  static_assert(C::kCopyBytes >= 4, "kProducer needs asynchronous copies: kCopyBytes 4 or more");
  static_assert(!C::kBiasInRegisters, "kProducer does not keep a bias: kBiasInRegisters must be 0");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
