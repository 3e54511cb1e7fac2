// templates/group_norm/activation_pair.cuh -- activation.cuh's functions, of two numbers at a time:
// one reciprocal for both, since there are few units for it.
#pragma once

#include "primitives/math.cuh"
#include "primitives/reciprocal.cuh"
#include "primitives/types.cuh"

namespace vitune {

// a *= over_a / under_a, and b likewise. The product of the lower ones is finite.
__device__ __forceinline__ void scale_by_quotients(float& a, float over_a, float under_a, float& b,
                                                   float over_b, float under_b) {
  const float both = reciprocal_approx(under_a * under_b);
  a *= over_a * (both * under_b);
  b *= over_b * (both * under_a);
}

// kKind: 0 none, 1 SiLU, 2 Mish. SiLU: below -42 the result is y 2^-62, where a smaller one is
// right.
template <int kKind>
__device__ __forceinline__ void activate_pair(float& a, float& b) {
  if constexpr (kKind == 1) {
    const auto under = [](float y) { return 1.f + exp2_approx(fminf(-kLog2E * y, 62.f)); };
    scale_by_quotients(a, 1.f, under(a), b, 1.f, under(b));
  } else if constexpr (kKind == 2) {
    const auto over = [](float y) {
      const float power = exp2_approx(kLog2E * fminf(y, 20.f));
      return power * (power + 2.f);
    };
    const float n = over(a), m = over(b);
    scale_by_quotients(a, n, n + 2.f, b, m, m + 2.f);
  }
}

}  // namespace vitune
