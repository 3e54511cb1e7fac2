// templates/primitives/wgmma_across.cuh -- Products as in wgmma.cuh, of which B lies across its
// rows: a form that takes whole panels of 64 columns.
#pragma once

#include "primitives/wgmma.cuh"

namespace vitune {

// d += A B for kColumns columns of B, a multiple of 64, or d = A B; A in shared memory along its
// rows.
template <int kType, int kColumns>
struct WgmmaAcross;

// kType, type's name, columns, and the numbers of the operands behind the accumulators.
#define VITUNE_WGMMA_ACROSS(type, name, n, i0, i1, i2)                               \
  template <>                                                                        \
  struct WgmmaAcross<type, n> {                                                      \
    static __device__ __forceinline__ void shared_a(float (&d)[n / 2], u64 a, u64 b, \
                                                    bool accumulate) {               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2                          \
                   ", 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name   \
                   " {" VITUNE_D##n "}, %" #i0 ", %" #i1 ", p, 1, 1, 0, 1;\n}"       \
                   : VITUNE_C##n                                                     \
                   : "l"(a), "l"(b), "r"(int(accumulate)));                          \
    }                                                                                \
  };
#define VITUNE_WGMMA_ACROSS_BOTH(n, i0, i1, i2) \
  VITUNE_WGMMA_ACROSS(0, "f16", n, i0, i1, i2)  \
  VITUNE_WGMMA_ACROSS(1, "bf16", n, i0, i1, i2)
VITUNE_WGMMA_ACROSS_BOTH(64, 32, 33, 34)
VITUNE_WGMMA_ACROSS_BOTH(128, 64, 65, 66)
VITUNE_WGMMA_ACROSS_BOTH(192, 96, 97, 98)
VITUNE_WGMMA_ACROSS_BOTH(256, 128, 129, 130)

}  // namespace vitune
