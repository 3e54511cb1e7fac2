// templates/window_attention/config.cuh -- What a generated Config must say, and what follows.
//
// Facts of the problem (the generator derives them):
//   kElement        0 = fp16, 1 = bf16: type of q, k, v and out; sums are fp32
//   kHeadDim        head size: 8..128 in steps of 8
//   kBias, kBiasVector  as in attention/config.cuh
//   kWindowRows, kWindowColumns  pixels of a window, kKeys their product
//   kShifted        1 = images are rolled
//   kPadded         1 = windows reach beyond images
//   kPadsFirst      1 = images are padded, then rolled; 0 = rolled, then padded
//   kGrid           1 = the pixels of a window are spread over the image
// Tunables:
//   kHeadsPerCta    (window, head) pairs that a CTA works on at once, each by warps of its own
//   kRowWarps       warps of a pair
//   kRowTiles       16-row tiles per warp that are worked on at once: 1 or 2
//   kBlockN         keys per step
//   kBuffers        2 = the next pair is copied while this one is worked on
//   kMinCtas        CTAs per SM the compiler must leave room for
//   kPersistent     1 = CTAs walk over many pairs, 0 = one each
//   kBiasInRegisters  1 = a warp keeps its rows' bias for the next pair
// and kCtaThreads and kSharedBytes, the host's idea of them, checked against the layout.
#pragma once

#include "attention/config.cuh"

namespace vitune {

template <class C>
struct WindowTraits : C {
  using Keys = KeyTiles<C>;
  using Rows = TileRows<C::kHeadDim>;
  // Facts that the parts of attention/ ask of a config and windows have no use for.
  static constexpr bool kCausal = false, kMask = false, kLse = false, kQueryInRegisters = false;
  static constexpr bool kHoldsReference = false, kBiasTiles = false;
  static constexpr int kMaskVector = 0;

  static constexpr int kGroupThreads = C::kRowWarps * kWarpSize;
  static constexpr int kThreads = C::kHeadsPerCta * kGroupThreads;
  static constexpr int kWarpRows = 16 * C::kRowTiles;
  static constexpr int kBlockM = C::kRowWarps * kWarpRows;
  static constexpr int kHeadSteps = C::kHeadDim / 16;
  static constexpr bool kHalfStep = C::kHeadDim % 16 != 0;
  static constexpr int kHeadTiles = C::kHeadDim / 8;
  static constexpr bool kMayBeEmpty = C::kBias != 0;
  static constexpr bool kPermuted = C::kBias != 0;

  // Shared memory of one pair: query (and output) rows, then K, then V.
  static constexpr int kQueryRows = ceil_div(C::kKeys, kWarpRows) * kWarpRows;
  static constexpr int kKeyRows = (Keys::kCount - 1) * C::kBlockN + Keys::kTailWidth;
  static constexpr int kTileBytes = C::kBlockN * Rows::kPitch;
  static constexpr int kPairBytes = (kQueryRows + 2 * kKeyRows) * Rows::kPitch;
  static constexpr int kBytes = C::kHeadsPerCta * C::kBuffers * kPairBytes;

  static_assert(C::kKeys == C::kWindowRows * C::kWindowColumns, "kKeys are the window's pixels");
  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(C::kHeadDim % 8 == 0 && C::kHeadDim >= 8 && C::kHeadDim <= 128,
                "kHeadDim must be 8 to 128 in steps of 8");
  static_assert(C::kBlockN % 8 == 0 && C::kBlockN >= 8 && C::kBlockN <= 256,
                "kBlockN must be 8 to 256 in steps of 8");
  static_assert(C::kRowTiles == 1 || C::kRowTiles == 2, "kRowTiles must be 1 or 2");
  static_assert(C::kHeadsPerCta >= 1 && C::kHeadsPerCta <= 8, "kHeadsPerCta must be 1 to 8");
  static_assert(C::kBias >= 0 && C::kBias <= 3, "kBias must be 0, 1 (fp32), 2 (fp16) or 3 (bf16)");
  static_assert(!C::kGrid || (!C::kShifted && !C::kPadded), "grids are neither rolled nor padded");
  static_assert(C::kBuffers == 1 || (C::kBuffers == 2 && C::kPersistent),
                "kBuffers is 1, or 2 for persistent CTAs");
  static_assert(!C::kBiasInRegisters || (C::kBias != 0 && C::kPersistent && Keys::kCount == 1),
                "kBiasInRegisters needs a bias, persistent CTAs and a single step of keys");
  static_assert(C::kCtaThreads == kThreads,
                "kCtaThreads differs from the kernel's threads: the launch plan is out of step");
  static_assert(C::kSharedBytes == kBytes,
                "kSharedBytes differs from the kernel's layout: the launch plan is out of step");
};

}  // namespace vitune
