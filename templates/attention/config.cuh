// templates/attention/config.cuh -- What a generated Config must say, and what follows from it.
//
// Facts of the problem (the generator derives them):
//   kElement        0 = fp16, 1 = bf16: type of q, k, v, o; sums are fp32
//   kHeadDim        head size: 8..128 in steps of 8, exact
//   kCausal         key j is seen by query i if j <= i
//   kBias           0 none; additive scores in 1 = fp32, 2 = fp16, 3 = bf16
//   kBiasVector     keys per aligned load of the bias: 4, 2, 1; 0 = keys are not contiguous
//                   (1: 16-bit rows that start anywhere, see shifted_rows.cuh)
//   kBiasAligned    1 = all rows of the bias begin at multiples of 16 bytes
//   kBiasOneRow     1 = all query rows have the same bias
//   kBiasWholeRows  1 = rows of the bias follow each other without gaps, or are all the same one,
//                   and 64 of them are few enough to stay in shared memory
//   kMask           a bool mask (true = attend) is applied
//   kMaskVector     keys per aligned load of the mask: 2, 1; 0 = keys are not contiguous
//                   (2 and 1 are read alike, see shifted_rows.cuh)
//   kLse            also writes the log-sum-exp
//   kCopyBytes      what the alignment of q, k, v and o allows: 16, 8, 4, 2
// Tunables: generator/attention/tunables.h says what each means; kConstantKeys stands here as
//   kKeys           token count if it is a constant of the kernel, 0 = an argument
// and kCtaThreads and kSharedBytes, the host's idea of the threads of a CTA and of its dynamic
// shared memory, checked against the layout.
#pragma once

#include "collective/cp_async_tile.cuh"
#include "primitives/types.cuh"

namespace vitune {

// How many keys each step of a kernel covers.
template <class C>
struct KeyTiles {
  static constexpr bool kConstant = C::kKeys > 0;
  static constexpr int kCount = kConstant ? ceil_div(C::kKeys, C::kBlockN) : 0;
  // Keys of the last step and its exact width; a count that is an argument uses the full width.
  static constexpr int kTailKeys = kConstant ? C::kKeys - (kCount - 1) * C::kBlockN : 0;
  static constexpr int kTailWidth = kConstant ? ceil_div(kTailKeys, 8) * 8 : C::kBlockN;
};

// True if weights are relative to the maximum of a row's first step (softmax.cuh): they need the
// exponents of fp32 when they are rounded, and a log-sum-exp needs sums that are not. The check at
// the end is not worth it for two steps.
template <class C>
inline constexpr bool holds_reference =
    C::kElement == 1 && C::kBias == 0 && !C::kMask && !C::kLse && KeyTiles<C>::kCount != 1 &&
    KeyTiles<C>::kCount != 2;

// Everything about a kernel that follows from its Config, with the rules it must obey.
template <class C>
struct Traits : C {
  using Keys = KeyTiles<C>;
  using Rows = TileRows<C::kHeadDim>;
  static constexpr int kThreads = C::kWarps * kWarpSize;
  static constexpr int kWarpRows = 16 * C::kRowTiles;
  static constexpr int kGroupWarps = C::kWarps / C::kHeadsPerCta;
  static constexpr int kGroupThreads = kGroupWarps * kWarpSize;
  static constexpr int kRowWarps = kGroupWarps / C::kKeySplit;  // that have rows of their own
  static constexpr int kBlockM = kWarpRows * kRowWarps;
  static constexpr int kHeadSteps = C::kHeadDim / 16;       // k16 steps of Q K^T
  static constexpr bool kHalfStep = C::kHeadDim % 16 != 0;  // and one of k8
  static constexpr int kHeadTiles = C::kHeadDim / 8;        // n8 tiles of P V
  // A row can be without any key only where a bias or a mask rules keys out, or in a warp's share.
  static constexpr bool kMayBeEmpty = C::kBias != 0 || C::kMask || C::kKeySplit > 1;
  // With a bias or mask each thread owns four neighbouring keys of every sixteen (see scores.cuh).
  static constexpr bool kPermuted = C::kBias != 0 || C::kMask;
  // Warps that share keys would need the same reference.
  static constexpr bool kHoldsReference = holds_reference<C> && C::kKeySplit == 1;
  static constexpr bool kBiasTiles = false;

  // Shared memory of one group of warps: query (and output) rows, then K, then V.
  static constexpr int kQueryBytes = kWarpRows * Rows::kPitch;  // of one warp and buffer
  static constexpr int kQueryBuffers = C::kResident ? C::kStages : 1;
  static constexpr int kTileBytes = C::kBlockN * Rows::kPitch;
  static constexpr int kKeyBytes =
      C::kResident ? ((Keys::kCount - 1) * C::kBlockN + Keys::kTailWidth) * Rows::kPitch
                   : C::kStages * C::kKeySplit * kTileBytes;
  static constexpr int kGroupBytes = kGroupWarps * kQueryBuffers * kQueryBytes + 2 * kKeyBytes;
  static constexpr int kBytes = C::kHeadsPerCta * kGroupBytes;

  static_assert(C::kSwizzle == 0 && !C::kProducer,
                "kSwizzle and kProducer belong to the warpgroup kernels: forward_sm90*.cuh");
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kHeadDim % 8 == 0 && C::kHeadDim >= 8 && C::kHeadDim <= 128,
                "kHeadDim must be 8 to 128 in steps of 8");
  static_assert(C::kBlockN % 8 == 0 && C::kBlockN >= 8 && C::kBlockN <= 256,
                "kBlockN must be 8 to 256 in steps of 8");
  static_assert(C::kRowTiles == 1 || C::kRowTiles == 2, "kRowTiles must be 1 or 2");
  static_assert(C::kWarps >= 1 && C::kWarps <= 16, "kWarps must be 1 to 16");
  static_assert(C::kStages >= 1 && C::kStages <= 4, "kStages must be 1 to 4");
  static_assert(C::kWarps % C::kHeadsPerCta == 0, "kHeadsPerCta must divide kWarps");
  static_assert(C::kBias >= 0 && C::kBias <= 3, "kBias must be 0, 1 (fp32), 2 (fp16) or 3 (bf16)");
  static_assert(C::kCopyBytes == 16 || C::kCopyBytes == 8 || C::kCopyBytes == 4 ||
                    C::kCopyBytes == 2,
                "kCopyBytes must be 16, 8, 4 or 2");
  static_assert(!C::kResident || Keys::kConstant,
                "kResident needs a constant token count: set kKeys or use the streaming schedule");
  static_assert(C::kResident || (C::kHeadsPerCta == 1 && C::kRowSplit == 1),
                "kHeadsPerCta and kRowSplit belong to the resident schedule: both must be 1");
  static_assert(
      C::kKeySplit == 1 || (!C::kResident && C::kRowTiles == 1 && kGroupWarps % C::kKeySplit == 0),
      "kKeySplit belongs to the streaming schedule with kRowTiles = 1 and divides kWarps");
  static_assert(!C::kResident || C::kStages <= 2,
                "the resident schedule has one or two query tiles");
  static_assert(C::kResident == 0 || C::kStages == 1 || C::kQueryInRegisters,
                "a second query tile is of use only if queries move on to registers");
  static_assert(!C::kBiasInRegisters || (C::kBias != 0 && C::kPersistent && Keys::kCount == 1),
                "kBiasInRegisters needs a bias, persistent CTAs and a single step of keys");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
