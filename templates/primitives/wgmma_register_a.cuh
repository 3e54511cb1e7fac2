// templates/primitives/wgmma_register_a.cuh -- Warpgroup matrix products with A in registers and
// the depth of B along its rows.
//
// The one form of m64nNk16 that wgmma.cuh is without; what that file says holds here too.
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

template <int kType, int kColumns>
struct WgmmaRegisterA;

#define VITUNE_WGMMA_REGISTER_A(type, name, n, i0, i1, i2, i3, i4, i5)                          \
  template <>                                                                                   \
  struct WgmmaRegisterA<type, n> {                                                              \
    static __device__ __forceinline__ void b_along(float (&d)[n / 2], const u32 (&a)[4], u64 b, \
                                                   bool accumulate) {                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5                                     \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name              \
                   " {" VITUNE_D##n "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4           \
                                    ", p, 1, 1, 0;\n}"                                          \
                   : VITUNE_C##n                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate))); \
    }                                                                                           \
  };
#define VITUNE_WGMMA_REGISTER_A_BOTH(n, i0, i1, i2, i3, i4, i5) \
  VITUNE_WGMMA_REGISTER_A(0, "f16", n, i0, i1, i2, i3, i4, i5)  \
  VITUNE_WGMMA_REGISTER_A(1, "bf16", n, i0, i1, i2, i3, i4, i5)
VITUNE_WGMMA_REGISTER_A_BOTH(8, 4, 5, 6, 7, 8, 9)
VITUNE_WGMMA_REGISTER_A_BOTH(16, 8, 9, 10, 11, 12, 13)
VITUNE_WGMMA_REGISTER_A_BOTH(24, 12, 13, 14, 15, 16, 17)
VITUNE_WGMMA_REGISTER_A_BOTH(32, 16, 17, 18, 19, 20, 21)
VITUNE_WGMMA_REGISTER_A_BOTH(40, 20, 21, 22, 23, 24, 25)
VITUNE_WGMMA_REGISTER_A_BOTH(48, 24, 25, 26, 27, 28, 29)
VITUNE_WGMMA_REGISTER_A_BOTH(56, 28, 29, 30, 31, 32, 33)
VITUNE_WGMMA_REGISTER_A_BOTH(64, 32, 33, 34, 35, 36, 37)
VITUNE_WGMMA_REGISTER_A_BOTH(72, 36, 37, 38, 39, 40, 41)
VITUNE_WGMMA_REGISTER_A_BOTH(80, 40, 41, 42, 43, 44, 45)
VITUNE_WGMMA_REGISTER_A_BOTH(88, 44, 45, 46, 47, 48, 49)
VITUNE_WGMMA_REGISTER_A_BOTH(96, 48, 49, 50, 51, 52, 53)
VITUNE_WGMMA_REGISTER_A_BOTH(104, 52, 53, 54, 55, 56, 57)
VITUNE_WGMMA_REGISTER_A_BOTH(112, 56, 57, 58, 59, 60, 61)
VITUNE_WGMMA_REGISTER_A_BOTH(120, 60, 61, 62, 63, 64, 65)
VITUNE_WGMMA_REGISTER_A_BOTH(128, 64, 65, 66, 67, 68, 69)

}  // namespace vitune
