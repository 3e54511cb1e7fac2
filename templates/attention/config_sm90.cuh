// templates/attention/config_sm90.cuh -- What follows from a Config for the warpgroup kernels.
//
// The facts and tunables are those of config.cuh; kSwizzle is not 0 here. A warpgroup of four warps
// works on 64 query rows, sixteen per warp; the warpgroups of a head share its keys and values.
#pragma once

#include "attention/config.cuh"
#include "collective/smem_tile.cuh"

namespace vitune {

inline constexpr int kGroupThreads = 4 * kWarpSize;
inline constexpr int kGroupRows = 64;

// The facts that the warpgroup kernels have in common.
template <class C>
struct GroupFacts : C {
  using Keys = KeyTiles<C>;
  using Rows = TileRows<C::kHeadDim>;  // of the epilogue's staging tile
  static constexpr int kWarpRows = 16;
  static constexpr int kHeadTiles = C::kHeadDim / 8;
  static constexpr int kHeadSteps = ceil_div(C::kHeadDim, 16);  // k16 steps of Q K^T
  static constexpr bool kMayBeEmpty = C::kBias != 0 || C::kMask;
  static constexpr bool kPermuted = C::kBias != 0 || C::kMask;
  static constexpr bool kHoldsReference = holds_reference<C>;
  static constexpr bool kBiasTiles = false;  // see bias_sm90.cuh
  static constexpr int kGroups = C::kWarps / 4;

  // Rows of the key and value tiles: all of a head's (resident), or one step's.
  static constexpr int kKeyRows =
      C::kResident ? (Keys::kCount - 1) * C::kBlockN + Keys::kTailWidth : C::kBlockN;
  // Products over keys take sixteen at a time.
  static constexpr int kValueRows = ceil_div(kKeyRows, 16) * 16;
  using QueryTile = SmemTile<C::kHeadDim, kGroupRows, C::kSwizzle>;
  using KeyTile = SmemTile<C::kHeadDim, kKeyRows, C::kSwizzle>;
  using ValueTile = SmemTile<C::kHeadDim, kValueRows, C::kSwizzle>;

  static_assert(C::kWarps % 4 == 0 && C::kWarps <= 16,
                "kSwizzle needs whole warpgroups: kWarps must be 4, 8, 12 or 16");
  static_assert(C::kRowTiles == 1 && !C::kQueryInRegisters,
                "kSwizzle goes with kRowTiles = 1 and kQueryInRegisters = 0");
  static_assert(C::kBlockN % 8 == 0 && C::kBlockN >= 8 && C::kBlockN <= 256,
                "kBlockN must be 8 to 256 in steps of 8");
  static_assert(C::kBlockN % 16 == 0 || Keys::kCount == 1,
                "several steps of keys must be multiples of 16");
  static_assert(!C::kResident || Keys::kConstant,
                "kResident needs a constant token count: set kKeys or use the streaming schedule");
};

template <class C>
struct GroupTraits : GroupFacts<C> {
  using F = GroupFacts<C>;
  using typename F::Keys;
  using typename F::KeyTile;
  using typename F::QueryTile;
  using typename F::Rows;
  using typename F::ValueTile;
  static constexpr int kThreads = C::kWarps * kWarpSize;
  static constexpr int kProductColumns = 256;                       // at most, of keys
  static constexpr int kHeadGroups = F::kGroups / C::kHeadsPerCta;  // warpgroups of a head
  static constexpr int kHeadThreads = kHeadGroups * kGroupThreads;
  static constexpr int kBlockM = kHeadGroups * kGroupRows;

  // Shared memory of one head: query (and output) tiles, then keys, then values.
  static constexpr int kQueryBytes =
      ceil_div(max_of(QueryTile::kBytes, kGroupRows* Rows::kPitch), 1024) * 1024;
  static constexpr int kQueryBuffers = C::kResident ? C::kStages : 1;
  static constexpr int kTiles = C::kResident ? 1 : C::kStages;
  static constexpr int kKeyBytes = kTiles * KeyTile::kBytes;
  static constexpr int kValueBytes = kTiles * ValueTile::kBytes;
  static constexpr int kHeadBytes =
      ceil_div(kHeadGroups * kQueryBuffers * kQueryBytes + kKeyBytes + kValueBytes, 1024) * 1024;
  static constexpr int kBytes = C::kHeadsPerCta * kHeadBytes;

  static_assert(!C::kProducer, "kProducer belongs to forward_sm90_pipelined.cuh");
  static_assert(C::kWarps % (4 * C::kHeadsPerCta) == 0 &&
                    (C::kHeadsPerCta == 1 || kHeadGroups == 1),
                "several heads per CTA have one warpgroup each");
  static_assert(C::kResident || (C::kHeadsPerCta == 1 && C::kRowSplit == 1),
                "kHeadsPerCta and kRowSplit belong to the resident schedule: both must be 1");
  static_assert(C::kResident ? C::kStages <= 2 : C::kStages >= 2,
                "kStages: one or two query tiles (resident), two or more key tiles (streaming)");
  static_assert(!C::kBiasInRegisters || (C::kBias != 0 && C::kPersistent && Keys::kCount == 1),
                "kBiasInRegisters needs a bias, persistent CTAs and a single step of keys");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
