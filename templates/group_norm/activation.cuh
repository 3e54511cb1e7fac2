// templates/group_norm/activation.cuh -- The functions that a result may go through.
#pragma once

#include "primitives/math.cuh"
#include "primitives/types.cuh"

namespace vitune {

// kKind: 0 none, 1 SiLU, 2 Mish. Right for every finite y: what overflows is on the side where the
// quotient is 0 or 1.
template <int kKind>
__device__ __forceinline__ float activated(float y) {
  if constexpr (kKind == 1) {
    return __fdividef(y, 1.f + exp2_approx(-kLog2E * y));
  } else if constexpr (kKind == 2) {
    // y tanh(log(1 + e^y)) = y n / (n + 2) with n = e^2y + 2 e^y; from 20 on that is y in fp32.
    const float power = exp2_approx(kLog2E * fminf(y, 20.f)), n = power * (power + 2.f);
    return y * __fdividef(n, n + 2.f);
  } else {
    return y;
  }
}

}  // namespace vitune
