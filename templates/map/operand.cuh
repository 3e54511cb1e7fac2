// templates/map/operand.cuh -- Neighbours along a map's vectors, from memory to fp32 and back.
//
// Where they lie side by side one access has all of them; where they are one element it is read
// once; else each has an access.
#pragma once

#include "map/params.cuh"
#include "primitives/vector.cuh"

namespace vitune {

// kCount neighbours from element `at` on. kType: 0 fp16, 1 bf16, 2 fp32, 3 u8, 4 bool. kShared:
// other threads read them too, and nobody writes them.
template <int kType, int kCount, bool kShared>
__device__ __forceinline__ void load_elements(const void* data, i64 at, float (&v)[kCount]) {
  if constexpr (kType < 3) {
    using Elements = Vector<kType, kCount>;
    const void* const from = Elements::address(data, at);
    if constexpr (kShared) {
      Elements::unpack(load_constant_piece<Elements::kBytes>(from), v);
    } else {
      Elements::unpack(load_piece<Elements::kBytes>(from), v);
    }
  } else {
    const unsigned char* const from = static_cast<const unsigned char*>(data) + at;
    u32 bytes[kCount];
    if constexpr (kCount == 1) {
      bytes[0] = __ldg(from);
    } else {
      const Piece<kCount> piece = load_piece<kCount>(from);
#pragma unroll
      for (int j = 0; j < kCount; ++j) bytes[j] = piece.words[j / 4] >> 8 * (j % 4) & 0xff;
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) v[j] = kType == 3 ? float(bytes[j]) : bytes[j] != 0;
  }
}

// The operands of C::kVector neighbours.
template <class C>
struct MapVector {
  float v[C::kVector][C::kOperands];

  // `i`: where the first of them is, along each dimension.
  template <int kOperand = 0>
  __device__ __forceinline__ void load(const MapParams& p, const u32 (&i)[C::kRank]) {
    if constexpr (kOperand < C::kOperands) {
      constexpr int kType = C::type(kOperand);
      constexpr i64 kStep = C::step(kOperand);
      constexpr int kAccess = kStep == 1 ? C::kVector : 1;
      const void* const data = p.in[C::letter(kOperand)];
      const i64 at = C::template place<kOperand>(i);
#pragma unroll
      for (int first = 0; first < C::kVector; first += kAccess) {
        float read[kAccess];
        if (first == 0 || kStep != 0) {
          load_elements<kType, kAccess, C::shared(kOperand)>(data, at + first * kStep, read);
        } else {
          read[0] = v[0][kOperand];
        }
#pragma unroll
        for (int j = 0; j < kAccess; ++j) v[first + j][kOperand] = read[j];
      }
      load<kOperand + 1>(p, i);
    }
  }
  __device__ __forceinline__ float x(int j) const { return C::x(v[j]); }
};

// kCount neighbours of the result, from element `at` on.
template <class C, int kCount>
__device__ __forceinline__ void store_results(const MapParams& p, i64 at,
                                              const float (&y)[kCount]) {
  constexpr i64 kStep = C::step(C::kOperands);
  constexpr int kAccess = kStep == 1 ? kCount : 1;
  using Elements = Vector<C::kOut, kAccess>;
#pragma unroll
  for (int first = 0; first < kCount; first += kAccess) {
    float some[kAccess];
#pragma unroll
    for (int j = 0; j < kAccess; ++j) some[j] = y[first + j];
    store_piece(Elements::address(p.out, at + first * kStep), Elements::pack(some));
  }
}

}  // namespace vitune
