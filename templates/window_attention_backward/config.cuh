// templates/window_attention_backward/config.cuh -- What a generated Config must say, and what
// follows.
//
// Facts of the problem: those of window_attention/config.cuh; and kGeometry, a
// WindowBackwardGeometry of its tunables (geometry_sm80.cuh).
#pragma once

#include "attention/config.cuh"
#include "primitives/rules.cuh"
#include "window_attention/params.cuh"
// After what it is made of.
#include "window_attention_backward/geometry_sm80.cuh"
#include "window_attention_backward/params.cuh"

namespace vitune {

template <class C>
struct WindowBackwardTraits : C {
  static constexpr WindowBackwardGeometry kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, window_backward_rules().all)>::kValue);
  static constexpr int kHeadDim = kG.head_dim, kBias = kG.bias, kWindowKeys = kG.keys;
  using Rows = TileRows<kHeadDim>;

  static constexpr int kSteps = kG.steps();
  static constexpr bool kKeepsScores = kG.keeps_scores != 0;

  // Facts that the parts of attention/ ask of a config. How many keys a step has is one of them
  // where all steps are alike.
  static constexpr int kKeys = kSteps == 1 && kKeepsScores ? kWindowKeys : 0;
  struct Keys {
    static constexpr int kTailKeys = kKeys;
  };
  static constexpr int kRowTiles = 1, kMaskVector = 0, kCopyBytes = 16;
  static constexpr bool kCausal = false, kMask = false, kQueryInRegisters = false;
  static constexpr bool kBiasInRegisters = false, kPermuted = kBias != 0;
  static constexpr int kHeadSteps = kHeadDim / 16, kHeadTiles = kHeadDim / 8;
  static constexpr bool kHalfStep = kHeadDim % 16 != 0;
  static constexpr int kPitch = Rows::kPitch;

  static constexpr int kWarps = kG.warps, kThreads = kG.threads();
  static constexpr int kTiles = kG.tiles(), kRows = kG.rows();
  static constexpr int kBlockN = kG.block_n, kTail = kG.tail(), kBuffers = kG.buffers;
  static constexpr bool kDbias = kG.dbias != 0;
  static constexpr bool kSumsInRegisters = kG.sums_in_registers(), kDpadding = kG.dpadding != 0;
  static constexpr bool kPartialTile = kWindowKeys % 16 != 0;  // the last one
  static constexpr int kScorePitch = kG.score_pitch(), kPlaneBytes = kG.plane_bytes();

  static_assert(C::kElement == 0 || C::kElement == 1, "kElement must be 0 (fp16) or 1 (bf16)");
  static_assert(kWindowKeys == C::kWindowRows * C::kWindowColumns, "keys are the window's pixels");
  static_assert(kPitch == kG.pitch(), "rows lie as the geometry says");
  static_assert(!C::kGrid || (!C::kShifted && !C::kPadded), "grids are neither rolled nor padded");
  static_assert(!kDpadding || C::kPadded, "padding has a gradient where there is some");
};

}  // namespace vitune
