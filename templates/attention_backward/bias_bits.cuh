// templates/attention_backward/bias_bits.cuh -- The numbers of a bias as they are stored.
#pragma once

#include "primitives/copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

// fp16 (2) or bf16 (3).
template <int kBias>
struct BiasBits {
  using Bits = u16;
  static constexpr Bits kMinusInfinity = kBias == 3 ? 0xff80 : 0xfc00;

  // Eight numbers, at a multiple of 16 bytes.
  static __device__ __forceinline__ void store(char* to, const Bits (&values)[8]) {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = values[2 * i] | u32(values[2 * i + 1]) << 16;
    store_chunk<16>(to, uint4{words[0], words[1], words[2], words[3]});
  }
};

// fp32: four numbers, and the other four behind those of a warpgroup's other threads.
template <>
struct BiasBits<1> {
  using Bits = u32;
  static constexpr Bits kMinusInfinity = 0xff800000;

  static __device__ __forceinline__ void store(char* to, const Bits (&values)[8]) {
    store_chunk<16>(to, uint4{values[0], values[1], values[2], values[3]});
    store_chunk<16>(to + 128 * 16, uint4{values[4], values[5], values[6], values[7]});
  }
};

}  // namespace vitune
