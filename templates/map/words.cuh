// templates/map/words.cuh -- The words of expressions, in fp32: the generator writes an expression
// as calls of these.
//
// NaN goes on as in PyTorch: min, max and relu keep it. Functions are the compiler's accurate ones.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ float map_add(float a, float b) { return a + b; }
__device__ __forceinline__ float map_sub(float a, float b) { return a - b; }
__device__ __forceinline__ float map_mul(float a, float b) { return a * b; }
__device__ __forceinline__ float map_div(float a, float b) { return a / b; }
// By a constant, whose rounded reciprocal is known: rounded like a / b by what is left over
// (Markstein's theorem), where that is a number.
__device__ __forceinline__ float map_div_by(float a, float b, float reciprocal) {
  const float quotient = a * reciprocal;
  const float rounded = fmaf(fmaf(-quotient, b, a), reciprocal, quotient);
  return rounded == rounded ? rounded : quotient;
}
__device__ __forceinline__ float map_min(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ float map_max(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float map_lt(float a, float b) { return a < b ? 1.f : 0.f; }
__device__ __forceinline__ float map_where(float c, float a, float b) { return c != 0 ? a : b; }
__device__ __forceinline__ float map_neg(float a) { return -a; }
__device__ __forceinline__ float map_abs(float a) { return fabsf(a); }
__device__ __forceinline__ float map_exp(float a) { return expf(a); }
__device__ __forceinline__ float map_log(float a) { return logf(a); }
__device__ __forceinline__ float map_sqrt(float a) { return sqrtf(a); }
__device__ __forceinline__ float map_rsqrt(float a) { return rsqrtf(a); }
__device__ __forceinline__ float map_sin(float a) { return sinf(a); }
__device__ __forceinline__ float map_cos(float a) { return cosf(a); }
__device__ __forceinline__ float map_tanh(float a) { return tanhf(a); }
__device__ __forceinline__ float map_sigmoid(float a) { return 1.f / (1.f + expf(-a)); }
__device__ __forceinline__ float map_erf(float a) { return erff(a); }
__device__ __forceinline__ float map_relu(float a) { return a < 0 ? 0.f : a; }
__device__ __forceinline__ float map_gelu(float a) {
  return 0.5f * a * (1.f + erff(a * 0.70710678118654752f));
}
// (1 + tanh(u)) / 2 is the logistic function of 2u.
__device__ __forceinline__ float map_gelu_tanh(float a) {
  constexpr float kFactor = -2.f * 0.79788456080286536f;
  return a / (1.f + expf(a * (kFactor + (kFactor * 0.044715f) * (a * a))));
}
__device__ __forceinline__ float map_quick_gelu(float a) { return a / (1.f + expf(-1.702f * a)); }
__device__ __forceinline__ float map_silu(float a) { return a / (1.f + expf(-a)); }
__device__ __forceinline__ float map_hardswish(float a) {
  return a * map_min(map_max(a + 3.f, 0.f), 6.f) * (1.f / 6.f);
}

}  // namespace vitune
