// templates/group_norm/activation_four.cuh -- activation.cuh's functions, of four numbers at a
// time: one reciprocal for all of them, since there are few units for it.
#pragma once

#include "primitives/math.cuh"
#include "primitives/reciprocal.cuh"
#include "primitives/types.cuh"

namespace vitune {

// The factor of the numbers before activate_four() takes them.
template <int kKind>
inline constexpr float kActivationScale = kKind == 1 ? -kLog2E : 1.f;

// y[i] *= factor / under[i]. The product of all of `under` is finite.
__device__ __forceinline__ void divide_four(float (&y)[4], const float (&under)[4], float factor) {
  const float first = under[0] * under[1], last = under[2] * under[3];
  const float all = reciprocal_approx(first * last) * factor;
  const float of_first = all * last, of_last = all * first;
  y[0] *= of_first * under[1];
  y[1] *= of_first * under[0];
  y[2] *= of_last * under[3];
  y[3] *= of_last * under[2];
}

// Activates y times kActivationScale. kKind: 0 none, 1 SiLU, 2 Mish. SiLU: below -21.5 the result
// is y 2^-31, where a smaller one is right.
template <int kKind>
__device__ __forceinline__ void activate_four(float (&y)[4]) {
  float under[4];
  if constexpr (kKind == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) under[i] = 1.f + exp2_approx(fminf(y[i], 31.f));
    divide_four(y, under, 1.f / kActivationScale<1>);
  } else if constexpr (kKind == 2) {
    // As in activation.cuh; from 10 on the quotient is 1 in fp32.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float power = exp2_approx(kLog2E * fminf(y[i], 10.f)), n = power * (power + 2.f);
      under[i] = n + 2.f;
      y[i] *= n;
    }
    divide_four(y, under, 1.f);
  }
}

}  // namespace vitune
