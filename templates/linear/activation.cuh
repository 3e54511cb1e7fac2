// templates/linear/activation.cuh -- The functions that a linear layer's sums may go through.
//
// All but GELU by erf and ReLU are x times the logistic function of a polynomial: one exponential
// and one quotient. Right for every finite x: what overflows is on the side where the result is 0.
#pragma once

#include "primitives/math.cuh"
#include "primitives/types.cuh"

namespace vitune {

// As the generator numbers them (LinearActivation).
enum LinearActivationKind : int {
  kActNone = 0,
  kActRelu = 1,
  kActGelu = 2,
  kActGeluTanh = 3,
  kActQuickGelu = 4,
  kActSilu = 5
};

// x / (1 + e^-t), `power` = -t log2(e).
__device__ __forceinline__ float gated(float x, float power) {
  return __fdividef(x, 1.f + exp2_approx(power));
}

// x Phi(x) for results that are rounded to bf16: Phi(x) is the logistic function of an odd
// polynomial, fitted by its relative error, 1.3e-3 on [-5, 5]: under half a unit in the last place,
// so that the rounded result is never more than one unit off. Below -5 the error is at most 2.4e-6.
__device__ __forceinline__ float gelu_for_bf16(float x) {
  const float z = fminf(fmaxf(x, -5.f), 5.f), s = z * z;
  float p = -9.03313944e-6f * kLog2E;
  p = p * s + 9.86735675e-4f * kLog2E;
  p = p * s - 7.58280576e-2f * kLog2E;
  p = p * s - 1.59260735f * kLog2E;
  return gated(x, z * p);
}

__device__ __forceinline__ float gelu_by_erf(float x) {
  return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
}

// kType: of the result, SupportType's number: 1 is bf16.
template <int kKind, int kType>
__device__ __forceinline__ float linear_activation(float x) {
  static_assert(kKind >= kActNone && kKind <= kActSilu, "kActivation must be 0 to 5");
  if constexpr (kKind == kActRelu) {
    return fmaxf(x, 0.f);
  } else if constexpr (kKind == kActGelu) {
    return kType == 1 ? gelu_for_bf16(x) : gelu_by_erf(x);
  } else if constexpr (kKind == kActGeluTanh) {
    // (1 + tanh(u)) / 2 is the logistic function of 2u.
    constexpr float kFactor = -2.f * 0.79788456080286536f * kLog2E;
    return gated(x, x * (kFactor + (kFactor * 0.044715f) * (x * x)));
  } else if constexpr (kKind == kActQuickGelu) {
    return gated(x, (-1.702f * kLog2E) * x);
  } else if constexpr (kKind == kActSilu) {
    return gated(x, -kLog2E * x);
  } else {
    return x;
  }
}

}  // namespace vitune
