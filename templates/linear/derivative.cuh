// templates/linear/derivative.cuh -- The derivatives of the functions in activation.cuh, and the
// functions beside them.
//
// For the gradient of an activation's argument: one exponential gives both. Right for every finite
// number, as the functions are. NaN stays NaN.
#pragma once

#include "linear/activation.cuh"

namespace vitune {

// act'(x) and act(x).
struct LinearSlope {
  float slope, value;
};

// Beyond this all slopes are 0 or 1, and polynomials of x would overflow.
inline constexpr float kSlopeEnd = 16.f;

// NaN, which fminf would hide, is not beyond it.
__device__ __forceinline__ float before_slope_end(float t) { return t > kSlopeEnd ? kSlopeEnd : t; }

// Phi(-t) - t phi(t) is the derivative at -t, and 1 minus that the one at t. It is Phi(-t) times
// nearly a polynomial, which was fitted to the Phi of activation.cuh by the absolute error of the
// product: 5.2e-5 for bf16, 2.2e-6 for fp16.
template <int kType>
__device__ __forceinline__ LinearSlope gelu_slope(float x) {
  const float t = before_slope_end(fabsf(x));
  const float tail = exp2_approx(gelu_log2_tail<kType>(t));
  float ratio;
  if constexpr (kType == 1) {
    ratio = 1.50174730e-2f * t - 1.10103490e-1f;
    ratio = ratio * t - 6.26447760e-1f;
    ratio = ratio * t - 8.03370370e-1f;
    ratio = ratio * t + 9.99895780e-1f;
  } else {
    ratio = -1.66823860e-3f * t + 1.97995970e-2f;
    ratio = ratio * t - 1.08057150e-1f;
    ratio = ratio * t - 6.37500640e-1f;
    ratio = ratio * t - 7.97691820e-1f;
    ratio = ratio * t + 9.99995660e-1f;
  }
  const float below = tail * ratio;
  return {x < 0.f ? below : 1.f - below, fmaxf(x, 0.f) - t * tail};
}

// The function x s and its derivative, with the logistic s = 1 / (1 + 2^power), whose exponent
// -power / log2(e) rises by `rise`.
__device__ __forceinline__ LinearSlope gated_slope(float x, float near, float power, float rise) {
  const float share = __fdividef(1.f, 1.f + exp2_approx(power));
  return {fmaf(near, rise * (share * (1.f - share)), share), x * share};
}

// kType: of the argument, 0 fp16, 1 bf16.
template <int kKind, int kType>
__device__ __forceinline__ LinearSlope linear_slope(float x) {
  static_assert(kKind > kActNone && kKind <= kActSilu, "kDerivative must be 1 to 5");
  static_assert(kType == 0 || kType == 1, "derivatives are at elements of 16 bits");
  if constexpr (kKind == kActRelu) {
    return {x < 0.f ? 0.f : x > 0.f ? 1.f : x, x < 0.f ? 0.f : x};
  } else if constexpr (kKind == kActGelu) {
    return gelu_slope<kType>(x);
  } else if constexpr (kKind == kActGeluTanh) {
    constexpr float kFactor = 2.f * 0.79788456080286536f, kCubic = kFactor * 0.044715f;
    const float low = x < -kSlopeEnd ? -kSlopeEnd : x, near = before_slope_end(low);
    const float square = near * near;
    return gated_slope(x, near, near * (-kLog2E * kFactor - kLog2E * kCubic * square),
                       kFactor + 3.f * kCubic * square);
  } else if constexpr (kKind == kActQuickGelu) {
    return gated_slope(x, x, (-1.702f * kLog2E) * x, 1.702f);
  } else {
    return gated_slope(x, x, -kLog2E * x, 1.f);
  }
}

}  // namespace vitune
