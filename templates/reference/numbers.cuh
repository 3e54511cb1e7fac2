// templates/reference/numbers.cuh -- Exact conversions between 16-bit bits and fp32, and a hash.
//
// Written with integer operations instead of the conversion instructions that the kernels under
// test use, so that the two cannot share a mistake; no value here is an fp32 denormal, so that
// flushing those to zero changes nothing.
#pragma once

#include "reference/support_params.cuh"

namespace vitune {

using RefU16 = unsigned short;
using RefU32 = unsigned int;
using RefU64 = unsigned long long;

__device__ inline float reference_minus_infinity() { return __uint_as_float(0xff800000u); }

// The value of fp16 bits.
__device__ inline float fp16_value(RefU16 bits) {
  const RefU32 sign = RefU32(bits & 0x8000) << 16;
  const RefU32 exponent = (bits >> 10) & 31;
  const RefU32 fraction = bits & 0x3ff;
  if (exponent == 0) {
    const float tiny = float(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -tiny : tiny;
  }
  const RefU32 wide = exponent == 31 ? 255u : exponent + 112u;
  return __uint_as_float(sign | (wide << 23) | (fraction << 13));
}

// fp16 bits of `value`, to nearest, ties to even.
__device__ inline RefU16 fp16_bits(float value) {
  const RefU32 bits = __float_as_uint(value);
  const RefU32 sign = (bits >> 16) & 0x8000u;
  const RefU32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return RefU16(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return RefU16(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {                                // below 2^-14: fixed point of 2^-24
    // rintf rounds to nearest even, and the product is exact.
    return RefU16(sign | RefU32(rintf(__uint_as_float(magnitude) * 16777216.f)));
  }
  const RefU32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return RefU16(sign | ((rounded >> 13) - (112u << 10)));
}

__device__ inline float bf16_value(RefU16 bits) { return __uint_as_float(RefU32(bits) << 16); }

// bf16 bits of `value`, to nearest, ties to even.
__device__ inline RefU16 bf16_bits(float value) {
  const RefU32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return RefU16((bits >> 16) | 0x40u);
  return RefU16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__device__ inline float value16(RefU16 bits, int type) {
  return type == kSupportFp16 ? fp16_value(bits) : bf16_value(bits);
}

__device__ inline RefU16 bits16(float value, int type) {
  return type == kSupportFp16 ? fp16_bits(value) : bf16_bits(value);
}

// The most negative finite number of `type`.
__device__ inline float lowest_value(int type) {
  if (type == kSupportFp32) return __uint_as_float(0xff7fffffu);
  return value16(type == kSupportFp16 ? 0xfbff : 0xff7f, type);
}

// Numbers that a model may put into masked places: half of the hashes give the most negative
// finite number, the others one that is smaller by 2^8 to 2^112. Of fp16 there is only the first:
// others would not mask.
__device__ inline float masked_value(RefU32 hash, int type) {
  const float lowest = lowest_value(type);
  if (type == kSupportFp16 || hash % 2 == 0) return lowest;
  const RefU32 power = 8 * (1 + hash / 2 % 14);
  return lowest * __uint_as_float((127 - power) << 23);
}

// Element `index` of a tensor of `type`.
__device__ inline float element_value(const void* data, long long index, int type) {
  if (type == kSupportFp32) return static_cast<const float*>(data)[index];
  if (type == kSupportU8) return static_cast<const unsigned char*>(data)[index];
  if (type == kSupportBool) return static_cast<const unsigned char*>(data)[index] != 0 ? 1.f : 0.f;
  return value16(static_cast<const RefU16*>(data)[index], type);
}

// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
__device__ inline RefU64 mix64(RefU64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ inline RefU64 hash_of(RefU64 seed, RefU64 index) { return mix64(mix64(seed) ^ index); }

// A value in (0, 1) from 32 random bits: never 0 and never 1.
__device__ inline float unit_interval(RefU32 bits) {
  return (float(bits >> 9) + 0.5f) * 1.1920928955078125e-7f;  // 2^-23
}

__device__ inline RefU64 global_thread() { return RefU64(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ inline RefU64 global_threads() { return RefU64(gridDim.x) * blockDim.x; }

}  // namespace vitune
