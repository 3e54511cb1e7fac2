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

// How L2 is to treat what passes through it: as usual, or to let it go first (the cache operator
// .cs), because nobody reads it again soon. L1 is passed by.
enum class Keep { kUsual, kNot };

template <int kBytes, Keep kKeep = Keep::kUsual>
__device__ __forceinline__ Piece<kBytes> load_piece(const void* from) {
  Piece<kBytes> piece;
  u32* const w = piece.words;
  if constexpr (kBytes == 2) {
    u16 half;
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(half) : "l"(from));
    } else {
      asm volatile("ld.global.cs.u16 %0, [%1];" : "=h"(half) : "l"(from));
    }
    w[0] = half;
  } else if constexpr (kBytes == 4) {
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
    } else {
      asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
    }
  } else if constexpr (kBytes == 8) {
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
    } else {
      asm volatile("ld.global.cs.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; i += 4) {
      const char* const at = static_cast<const char*>(from) + 4 * i;
      if constexpr (kKeep == Keep::kUsual) {
        asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w[i]), "=r"(w[i + 1]), "=r"(w[i + 2]), "=r"(w[i + 3])
                     : "l"(at));
      } else {
        asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w[i]), "=r"(w[i + 1]), "=r"(w[i + 2]), "=r"(w[i + 3])
                     : "l"(at));
      }
    }
  }
  return piece;
}

// Loads data that many CTAs read and nobody writes meanwhile: by the read-only path, kept in L1. It
// stays where it is written: hoisted, it would hold registers.
template <int kBytes>
__device__ __forceinline__ Piece<kBytes> load_constant_piece(const void* from) {
  Piece<kBytes> piece;
  u32* const w = piece.words;
  if constexpr (kBytes == 2) {
    u16 half;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
    w[0] = half;
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; i += 4) {
      asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(w[i]), "=r"(w[i + 1]), "=r"(w[i + 2]), "=r"(w[i + 3])
                   : "l"(static_cast<const char*>(from) + 4 * i));
    }
  }
  return piece;
}

template <Keep kKeep = Keep::kUsual, int kBytes>
__device__ __forceinline__ void store_piece(void* to, const Piece<kBytes>& piece) {
  const u32* const w = piece.words;
  if constexpr (kBytes == 2) {
    const u16 half = u16(w[0]);
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(half) : "memory");
    } else {
      asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(to), "h"(half) : "memory");
    }
  } else if constexpr (kBytes == 4) {
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");
    } else {
      asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(w[0]) : "memory");
    }
  } else if constexpr (kBytes == 8) {
    if constexpr (kKeep == Keep::kUsual) {
      asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
    } else {
      asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; i += 4) {
      char* const at = static_cast<char*>(to) + 4 * i;
      if constexpr (kKeep == Keep::kUsual) {
        asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(w[i]), "r"(w[i + 1]),
                     "r"(w[i + 2]), "r"(w[i + 3])
                     : "memory");
      } else {
        asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(w[i]), "r"(w[i + 1]),
                     "r"(w[i + 2]), "r"(w[i + 3])
                     : "memory");
      }
    }
  }
}

}  // namespace vitune
