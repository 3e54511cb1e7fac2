// templates/attention_backward/config.cuh -- What a generated Config of attention's gradients must
// say, and what follows from it.
//
// Facts of the problem (the generator derives them), as attention/config.cuh has them:
//   kElement, kHeadDim, kCausal, kBias, kBiasVector, kMask, kMaskVector
//   kDbias      SupportType of the bias's gradient; -1: it is not asked for
//   kCopyBytes  what the alignment of all eight tensors allows: 16, 8, 4, 2
// and kGeometry, a struct of the family's tunables.
#pragma once

#include "attention/config.cuh"
#include "attention_backward/params.cuh"

namespace vitune {

// What attention's own templates ask of a kernel whose tiles have 16 query rows for a warp, and
// whose token counts are arguments.
template <class C>
struct AttentionBackwardTraits : C {
  using Rows = TileRows<C::kHeadDim>;
  struct Keys {
    static constexpr int kTailKeys = 0;
  };
  static constexpr int kKeys = 0, kRowTiles = 1;
  static constexpr bool kPermuted = C::kBias != 0 || C::kMask;
  static constexpr bool kBiasInRegisters = false;
  static constexpr int kHeadSteps = C::kHeadDim / 16;
  static constexpr bool kHalfStep = C::kHeadDim % 16 != 0;
  static constexpr int kHeadTiles = C::kHeadDim / 8;
  static constexpr int kPitch = Rows::kPitch;
};

}  // namespace vitune
