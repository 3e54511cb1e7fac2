// templates/attention/philox.cuh -- Philox4x32-7: 128 random bits that are a function of a counter
// and a key (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Seven rounds are
// the fewest that pass their tests (BigCrush), and what PyTorch's FlashAttention draws with.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

__device__ __forceinline__ void philox_round(u32 (&c)[4], u32 key0, u32 key1) {
  const u64 first = u64(0xd2511f53u) * c[0], second = u64(0xcd9e8d57u) * c[2];
  c[0] = u32(second >> 32) ^ c[1] ^ key0;
  c[1] = u32(second);
  c[2] = u32(first >> 32) ^ c[3] ^ key1;
  c[3] = u32(first);
}

// The counter becomes what is drawn.
__device__ __forceinline__ void philox(u32 (&c)[4], u32 key0, u32 key1) {
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    philox_round(c, key0, key1);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

}  // namespace vitune
