// templates/primitives/stmatrix_trans.cuh -- Fragments of accumulators to columns in shared memory.
//
// As stmatrix.cuh, with each matrix transposed: lane 8i + r gives the address of column r (16
// bytes) of matrix i; lane l holds the 32-bit word l % 4 of row l / 4 of each matrix.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ void stmatrix_x4_trans(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace vitune
