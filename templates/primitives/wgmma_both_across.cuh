// templates/primitives/wgmma_both_across.cuh -- Warpgroup matrix products whose depth runs across
// the rows of both operands (MN-major), as sums over rows of two matrices have it.
//
// As wgmma.cuh, whose lists of accumulators these are. Both lie in panels of 64 columns
// (descriptor_across_rows() in swizzle.cuh).
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

template <int kType, int kColumns>
struct WgmmaBothAcross;

// kType, type's name, columns, and the numbers of the operands behind the accumulators.
#define VITUNE_BOTH_ACROSS(type, name, n, i0, i1, i2)                              \
  template <>                                                                      \
  struct WgmmaBothAcross<type, n> {                                                \
    static __device__ __forceinline__ void both(float (&d)[n / 2], u64 a, u64 b,   \
                                                bool accumulate) {                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2                        \
                   ", 0;\n"                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name \
                   " {" VITUNE_D##n "}, %" #i0 ", %" #i1 ", p, 1, 1, 1, 1;\n}"     \
                   : VITUNE_C##n                                                   \
                   : "l"(a), "l"(b), "r"(int(accumulate)));                        \
    }                                                                              \
  };
#define VITUNE_BOTH_ACROSS_TYPES(n, i0, i1, i2) \
  VITUNE_BOTH_ACROSS(0, "f16", n, i0, i1, i2)   \
  VITUNE_BOTH_ACROSS(1, "bf16", n, i0, i1, i2)
VITUNE_BOTH_ACROSS_TYPES(64, 32, 33, 34)
VITUNE_BOTH_ACROSS_TYPES(128, 64, 65, 66)
VITUNE_BOTH_ACROSS_TYPES(192, 96, 97, 98)
VITUNE_BOTH_ACROSS_TYPES(256, 128, 129, 130)

}  // namespace vitune
