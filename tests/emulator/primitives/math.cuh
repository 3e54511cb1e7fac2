// tests/emulator/primitives/math.cuh -- Stands in for templates/primitives/math.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Results below the smallest normal number are flushed to 0, as .ftz says.
inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0.f : x; }
inline float exp2_approx(float x) { return flushed(exp2f(flushed(x))); }
inline float log2_approx(float x) { return log2f(flushed(x)); }

}  // namespace vitune
