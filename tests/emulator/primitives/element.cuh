// tests/emulator/primitives/element.cuh -- Stands in for templates/primitives/element.cuh.
//
// Fragments as the PTX ISA draws them ("Matrix Fragments for mma.m16n8k16 / m16n8k8 with floating
// point type"), worked out here from that text and not from the template: g = lane / 4, t = lane
// % 4.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline float half_value(u16 bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude = exponent == 0    ? ldexpf(float(fraction), -24)
                    : exponent == 31 ? (fraction ? NAN : INFINITY)
                                     : ldexpf(float(1024 + fraction), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

inline u16 half_bits(float value) {
  const u16 sign = signbit(value) ? 0x8000 : 0;
  const float magnitude = fabsf(value);
  if (isnan(value)) return 0x7fff;
  if (magnitude >= 65520.f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) return sign | u16(nearbyintf(ldexpf(magnitude, 24)));
  int exponent;
  const float fraction = frexpf(magnitude, &exponent);         // in [0.5, 1)
  const u32 mantissa = u32(nearbyintf(ldexpf(fraction, 11)));  // 1024..2048
  return sign | u16((u32(exponent + 13) << 10) + mantissa);
}

inline u16 bfloat_bits(float value) {
  const u32 bits = __float_as_uint(value);
  if (isnan(value)) return 0x7fff;
  return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Eight neighbouring columns of a product; each element is summed in the order of the depth.
using Columns = float __attribute__((vector_size(32)));

struct MmaCall {
  float* d;
  u32 a[4], b[2];
};

template <int kType>
struct Element {
  static_assert(kType == 0 || kType == 1);
  static float unpack(u16 bits) {
    return kType == 0 ? half_value(bits) : __uint_as_float(u32(bits) << 16);
  }
  static u16 bits(float value) { return kType == 0 ? half_bits(value) : bfloat_bits(value); }
  static u32 pack(float low, float high) { return bits(low) | u32(bits(high)) << 16; }
  static float low(u32 packed) { return unpack(u16(packed)); }
  static float high(u32 packed) { return unpack(u16(packed >> 16)); }

  static void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    MmaCall mine{d, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    vitune_emulator::warp_collective(
        mine, [](vitune_emulator::Machine&, MmaCall** lanes) { multiply<16>(lanes); });
  }
  static void mma_half(float (&d)[4], u32 a0, u32 a1, u32 b0) {
    MmaCall mine{d, {a0, a1, 0, 0}, {b0, 0}};
    vitune_emulator::warp_collective(
        mine, [](vitune_emulator::Machine&, MmaCall** lanes) { multiply<8>(lanes); });
  }

 private:
  template <int kDepth>
  static void multiply(MmaCall** lanes) {
    float a[16][kDepth];
    Columns b[kDepth];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < kDepth / 4; ++i) {  // registers of A: rows g, g + 8; then columns + 8
        const int row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
        a[row][column] = low(lanes[lane]->a[i]);
        a[row][column + 1] = high(lanes[lane]->a[i]);
      }
      for (int i = 0; i < kDepth / 8; ++i) {
        b[2 * t + 8 * i][g] = low(lanes[lane]->b[i]);
        b[2 * t + 8 * i + 1][g] = high(lanes[lane]->b[i]);
      }
    }
    Columns sums[16] = {};
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < kDepth; ++k) sums[row] += a[row][k] * b[k];
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) lanes[lane]->d[i] += sums[g + 8 * (i / 2)][2 * t + i % 2];
    }
  }
};

}  // namespace vitune
