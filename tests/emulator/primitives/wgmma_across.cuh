// tests/emulator/primitives/wgmma_across.cuh -- Stands in for the templates' file of this name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

template <int kType, int kColumns>
struct WgmmaAcross {
  static_assert(kColumns % 64 == 0 && kColumns >= 64 && kColumns <= 256);
  static void shared_a(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    issue_wgmma({.d = d,
                 .kind = WgmmaCall::A::kShared,
                 .a = {},
                 .descriptor_a = a,
                 .descriptor_b = b,
                 .columns = kColumns,
                 .accumulate = accumulate,
                 .value = &Element<kType>::unpack,
                 .b_across = true});
  }
};

}  // namespace vitune
