// tests/emulator/primitives/wgmma_both_across.cuh -- Stands in for
// templates/primitives/wgmma_both_across.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

template <int kType, int kColumns>
struct WgmmaBothAcross {
  static_assert(kColumns % 64 == 0 && kColumns >= 64 && kColumns <= 256);
  static void both(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    WgmmaCall call{d,          WgmmaCall::A::kSharedAcross, {}, a, b, kColumns,
                   accumulate, &Element<kType>::unpack};
    call.b_across = true;
    issue_wgmma(call);
  }
};

}  // namespace vitune
