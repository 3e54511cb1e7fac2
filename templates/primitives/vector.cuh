// templates/primitives/vector.cuh -- Neighbouring elements of a tensor as fp32 numbers.
#pragma once

#include "primitives/element.cuh"
#include "primitives/piece.cuh"

namespace vitune {

// kCount elements of type kType: 0 fp16, 1 bf16, 2 fp32. Numbers become 16-bit elements by rounding
// to nearest even.
template <int kType, int kCount>
struct Vector {
  static constexpr int kElementBytes = kType == 2 ? 4 : 2;
  static constexpr int kBytes = kCount * kElementBytes;
  using Raw = Piece<kBytes>;

  static __device__ __forceinline__ void unpack(const Raw& raw, float (&values)[kCount]) {
    if constexpr (kType == 2) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = __uint_as_float(raw.words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = i % 2 == 0 ? Element<kType>::low(raw.words[i / 2])
                               : Element<kType>::high(raw.words[i / 2]);
      }
    }
  }
  static __device__ __forceinline__ Raw pack(const float (&values)[kCount]) {
    Raw raw;
    if constexpr (kType == 2) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) raw.words[i] = __float_as_uint(values[i]);
    } else if constexpr (kCount == 1) {
      raw.words[0] = Element<kType>::pack(values[0], 0.f);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        raw.words[i / 2] = Element<kType>::pack(values[i], values[i + 1]);
      }
    }
    return raw;
  }
  // The address of element `at`.
  static __device__ __forceinline__ const void* address(const void* data, i64 at) {
    return static_cast<const char*>(data) + at * kElementBytes;
  }
  static __device__ __forceinline__ void* address(void* data, i64 at) {
    return static_cast<char*>(data) + at * kElementBytes;
  }
};

}  // namespace vitune
