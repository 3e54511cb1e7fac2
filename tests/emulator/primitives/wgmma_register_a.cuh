// tests/emulator/primitives/wgmma_register_a.cuh -- Stands in for the templates' file of this name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

template <int kType, int kColumns>
struct WgmmaRegisterA : Wgmma<kType, kColumns> {
  static void b_along(float (&d)[kColumns / 2], const u32 (&a)[4], u64 b, bool accumulate) {
    Wgmma<kType, kColumns>::issue_register_a(d, a, b, accumulate, false);
  }
};

}  // namespace vitune
