// templates/window_attention/config.cuh -- What a generated Config must say, and what follows.
//
// Facts of the problem (the generator derives them):
//   kElement        0 = fp16, 1 = bf16: type of q, k, v and out; sums are fp32
//   kBiasVector     as in attention/config.cuh
//   kWindowRows, kWindowColumns  pixels of a window
//   kShifted        1 = images are rolled
//   kPadded         1 = windows reach beyond images
//   kPadsFirst      1 = images are padded, then rolled; 0 = rolled, then padded
//   kGrid           1 = the pixels of a window are spread over the image
// and kGeometry, a WindowGeometry of its tunables (geometry_sm80.cuh).
#pragma once

#include "attention/config.cuh"
#include "primitives/rules.cuh"
#include "window_attention/geometry_sm80.cuh"

namespace vitune {

// The geometry under the names that attention/ has for its numbers.
template <class C>
struct WindowNumbers : C {
  static constexpr WindowGeometry kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, window_rules().all)>::kValue);
  static constexpr int kHeadDim = kG.head_dim, kKeys = kG.keys, kBias = kG.bias;
  static constexpr int kBlockN = kG.block_n, kRowTiles = kG.row_tiles, kBuffers = kG.buffers;
  static constexpr int kHeadsPerCta = kG.heads_per_cta;
  static constexpr bool kPersistent = kG.persistent, kBiasInRegisters = kG.bias_in_registers;
};

template <class C>
struct WindowTraits : WindowNumbers<C> {
  using N = WindowNumbers<C>;
  using Keys = KeyTiles<N>;
  using Rows = TileRows<N::kHeadDim>;
  // Facts that the parts of attention/ ask of a config and windows have no use for.
  static constexpr bool kCausal = false, kMask = false, kLse = false, kQueryInRegisters = false;
  static constexpr bool kHoldsReference = false, kBiasTiles = false;
  static constexpr int kMaskVector = 0;

  static constexpr int kGroupThreads = N::kG.row_warps * kWarpSize;
  static constexpr int kWarpRows = 16 * N::kRowTiles;
  static constexpr int kBlockM = N::kG.row_warps * kWarpRows;
  static constexpr int kHeadSteps = N::kHeadDim / 16;
  static constexpr bool kHalfStep = N::kHeadDim % 16 != 0;
  static constexpr int kHeadTiles = N::kHeadDim / 8;
  static constexpr bool kMayBeEmpty = N::kBias != 0;
  static constexpr bool kPermuted = N::kBias != 0;

  static constexpr int kQueryRows = N::kG.query_rows(), kKeyRows = N::kG.key_rows();
  static constexpr int kTileBytes = N::kBlockN * Rows::kPitch;
  static constexpr int kPairBytes = N::kG.pair_bytes();

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(N::kKeys == C::kWindowRows * C::kWindowColumns, "keys are the window's pixels");
  static_assert(Rows::kPitch == N::kG.pitch() &&
                    kKeyRows == (Keys::kCount - 1) * N::kBlockN + Keys::kTailWidth,
                "tiles lie as the geometry says");
  static_assert(!C::kGrid || (!C::kShifted && !C::kPadded), "grids are neither rolled nor padded");
};

}  // namespace vitune
