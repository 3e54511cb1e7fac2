// tests/emulator/primitives/hold.cuh -- Stands in for templates/primitives/hold.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline void hold(float&) {}

}  // namespace vitune
