// templates/primitives/types.cuh -- Short names and constants; NVRTC has no standard headers.
#pragma once

namespace vitune {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

inline constexpr int kWarpSize = 32;
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int min_of(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int max_of(int a, int b) { return a > b ? a : b; }

// The value whose bits are those of minus infinity (there is no INFINITY without headers).
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

}  // namespace vitune
