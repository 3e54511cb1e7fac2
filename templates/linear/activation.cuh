// templates/linear/activation.cuh -- The functions that a linear layer's sums may go through.
//
// GELU is one exponential, or erf where the result is fp32; the others but ReLU are x times the
// logistic function of a polynomial: one exponential and one quotient. Right for every finite x:
// what overflows is on the side where the result is 0. NaN stays NaN.
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

// The logarithm of Phi(-t) for t >= 0. It is nearly a parabola: polynomials, fitted by the relative
// error of Phi, make that one exponential and no quotient.
template <int kType>
__device__ __forceinline__ float gelu_log2_tail(float t) {
  float log2_tail;
  if constexpr (kType == 1) {  // bf16: 1.4e-3 for t <= 8
    log2_tail = -1.21451740e-4f * t + 3.28688300e-3f;
    log2_tail = log2_tail * t - 3.69553976e-2f;
    log2_tail = log2_tail * t - 4.83891964e-1f;
    log2_tail = log2_tail * t - 1.13859642f;
  } else {  // fp16: 3.9e-6 for t <= 6, from where on results are 0
    log2_tail = -1.79377923e-6f * t + 6.07261391e-5f;
    log2_tail = log2_tail * t - 9.23185551e-4f;
    log2_tail = log2_tail * t + 8.47684685e-3f;
    log2_tail = log2_tail * t - 5.38909361e-2f;
    log2_tail = log2_tail * t - 4.58541572e-1f;
    log2_tail = log2_tail * t - 1.15121436f;
  }
  return log2_tail * t - 1.f;
}

// x Phi(x) as max(x, 0) - |x| Phi(-|x|). Results that are rounded to kType are never more than a
// unit in the last place off.
template <int kType>
__device__ __forceinline__ float gelu_by_exponential(float x) {
  const float t = fabsf(x);
  const float log2_tail = gelu_log2_tail<kType>(t);
  return fmaxf(x, 0.f) - t * exp2_approx(log2_tail);
}

__device__ __forceinline__ float gelu_by_erf(float x) {
  return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
}

// kType: of the result, SupportType's number: 0 fp16, 1 bf16, 2 fp32.
template <int kKind, int kType>
__device__ __forceinline__ float linear_activation(float x) {
  static_assert(kKind >= kActNone && kKind <= kActSilu, "kActivation must be 0 to 5");
  if constexpr (kKind == kActRelu) {
    return x < 0.f ? 0.f : x;  // a NaN stays one, which fmaxf would hide
  } else if constexpr (kKind == kActGelu) {
    if constexpr (kType == 2) {
      return gelu_by_erf(x);
    } else {
      return gelu_by_exponential<kType>(x);
    }
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
