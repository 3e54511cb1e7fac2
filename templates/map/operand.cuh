// templates/map/operand.cuh -- Neighbours along a map's vectors, from memory to fp32 and back.
//
// Where they lie side by side one access has all of them; where they are one element it is read
// once; where colours lie between them (an image's bytes), the accesses of all colours are read and
// those of one taken; else each has an access, whose line L1 keeps for the next.
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

// An element whose neighbours in memory other accesses read soon: L1 keeps its line.
template <int kType>
__device__ __forceinline__ float load_apart(const void* data, i64 at) {
  if constexpr (kType == 2) {
    return static_cast<const float*>(data)[at];
  } else if constexpr (kType < 2) {
    return Element<kType>::low(static_cast<const u16*>(data)[at]);
  } else {
    const unsigned char byte = static_cast<const unsigned char*>(data)[at];
    return kType == 3 ? float(byte) : byte != 0;
  }
}

// Number `at` of the elements in a word and those behind it.
template <int kType>
__device__ __forceinline__ float element_of(const u32* words, int at) {
  if constexpr (kType == 2) {
    return __uint_as_float(words[at]);
  } else if constexpr (kType < 2) {
    const u32 word = words[at / 2];
    return at % 2 == 0 ? Element<kType>::low(word) : Element<kType>::high(word);
  } else {
    const u32 byte = words[at / 4] >> 8 * (at % 4) & 0xff;
    return kType == 3 ? float(byte) : byte != 0;
  }
}

// kCount neighbours of the colour `colour` of kColours, which lie between each other from element
// `at`, the first one's first colour, on.
template <int kType, int kCount, int kColours>
__device__ __forceinline__ void load_colour(const void* data, i64 at, u32 colour,
                                            float (&v)[kCount]) {
  constexpr int kElement = kType == 2 ? 4 : kType < 2 ? 2 : 1;
  constexpr int kBytes = kCount * kColours * kElement;
  constexpr int kAccess = kBytes % 16 == 0 ? 16 : kBytes % 8 == 0 ? 8 : 4;
  const char* const from = static_cast<const char*>(data) + at * kElement;
  u32 words[kBytes / 4 + 1];
#pragma unroll
  for (int first = 0; first < kBytes; first += kAccess) {
    const Piece<kAccess> piece = load_constant_piece<kAccess>(from + first);
#pragma unroll
    for (int w = 0; w < kAccess / 4; ++w) words[first / 4 + w] = piece.words[w];
  }
  words[kBytes / 4] = 0;
#pragma unroll
  for (int w = 0; w < kBytes / 4; ++w) {
    words[w] = __funnelshift_r(words[w], words[w + 1], 8 * kElement * colour);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) v[j] = element_of<kType>(words, j * kColours);
}

// The operands of C::kVector neighbours.
template <class C>
struct MapVector {
  float v[C::kVector][C::kOperands];

  // `i`: where the first of them is, along each dimension.
  template <int kOperand = 0>
  __device__ __forceinline__ void load(const MapParams& p, const u32 (&i)[C::kRank]) {
    if constexpr (kOperand < C::kOperands) {
      load_one<kOperand>(p, i);
      load<kOperand + 1>(p, i);
    }
  }
  // The same, but that operands which repeat along C::kAlong are those of `first`.
  template <int kOperand = 0>
  __device__ __forceinline__ void load_behind(const MapVector& first, const MapParams& p,
                                              const u32 (&i)[C::kRank]) {
    if constexpr (kOperand < C::kOperands) {
      if constexpr (C::repeats(kOperand)) {
#pragma unroll
        for (int j = 0; j < C::kVector; ++j) v[j][kOperand] = first.v[j][kOperand];
      } else {
        load_one<kOperand>(p, i);
      }
      load_behind<kOperand + 1>(first, p, i);
    }
  }
  template <int kOperand>
  __device__ __forceinline__ void load_one(const MapParams& p, const u32 (&i)[C::kRank]) {
    constexpr int kType = C::type(kOperand), kColour = C::colour(kOperand);
    constexpr i64 kStep = C::step(kOperand);
    const void* const data = p.in[C::letter(kOperand)];
    const i64 at = C::template place<kOperand>(i);
    float read[C::kVector];
    if constexpr (kStep == 1) {
      load_elements<kType, C::kVector, C::shared(kOperand)>(data, at, read);
    } else if constexpr (kColour >= 0) {
      const u32 colour = i[kColour >= 0 ? kColour : 0];
      load_colour<kType, C::kVector, int(kStep)>(data, at - colour, colour, read);
    } else {
#pragma unroll
      for (int j = 0; j < C::kVector; ++j) {
        read[j] = j > 0 && kStep == 0 ? read[0] : load_apart<kType>(data, at + j * kStep);
      }
    }
#pragma unroll
    for (int j = 0; j < C::kVector; ++j) v[j][kOperand] = read[j];
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
