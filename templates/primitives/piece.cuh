// templates/primitives/piece.cuh -- Global memory in pieces of 2 to 32 bytes, through registers.
//
// A piece is aligned to its size, or to 16 bytes if it is larger.
#pragma once

#include "primitives/element.cuh"
#include "primitives/types.cuh"

namespace vitune {

template <int kBytes>
struct Piece {
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16 || kBytes == 32);
  u32 words[kBytes < 4 ? 1 : kBytes / 4];
};

// What is read once: through L2 and past L1.
template <int kBytes>
__device__ __forceinline__ Piece<kBytes> load_piece(const void* from) {
  Piece<kBytes> piece;
  if constexpr (kBytes == 2) {
    u16 half;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(half) : "l"(from));
    piece.words[0] = half;
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(piece.words[0]) : "l"(from));
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];"
                 : "=r"(piece.words[0]), "=r"(piece.words[1])
                 : "l"(from));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      u32* const w = piece.words + 4 * i;
      asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "l"(static_cast<const char*>(from) + 16 * i));
    }
  }
  return piece;
}

// What many CTAs read and nobody writes meanwhile: by the read-only path, kept in L1.
template <int kBytes>
__device__ __forceinline__ Piece<kBytes> load_constant_piece(const void* from) {
  Piece<kBytes> piece;
  if constexpr (kBytes == 2) {
    piece.words[0] = __ldg(static_cast<const u16*>(from));
  } else if constexpr (kBytes == 4) {
    piece.words[0] = __ldg(static_cast<const u32*>(from));
  } else if constexpr (kBytes == 8) {
    const uint2 v = __ldg(static_cast<const uint2*>(from));
    piece.words[0] = v.x;
    piece.words[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = __ldg(static_cast<const uint4*>(from) + i);
      piece.words[4 * i] = v.x;
      piece.words[4 * i + 1] = v.y;
      piece.words[4 * i + 2] = v.z;
      piece.words[4 * i + 3] = v.w;
    }
  }
  return piece;
}

template <int kBytes>
__device__ __forceinline__ void store_piece(void* to, const Piece<kBytes>& piece) {
  if constexpr (kBytes == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(u16(piece.words[0])) : "memory");
  } else if constexpr (kBytes == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(piece.words[0]) : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(piece.words[0]),
                 "r"(piece.words[1])
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const u32* const w = piece.words + 4 * i;
      asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(static_cast<char*>(to) + 16 * i),
                   "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                   : "memory");
    }
  }
}

}  // namespace vitune
