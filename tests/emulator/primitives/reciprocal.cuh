// tests/emulator/primitives/reciprocal.cuh -- Stands in for templates/primitives/reciprocal.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/math.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline float reciprocal_approx(float x) { return flushed(1.f / flushed(x)); }

}  // namespace vitune
