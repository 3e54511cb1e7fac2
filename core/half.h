// core/half.h -- bf16 and fp16 as bits, to fp32 and back, rounded to nearest even.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace vitune {

inline float widened_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline float widened_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  const float size = exponent == 0 ? static_cast<float>(fraction) * 0x1p-24f
                                   : std::bit_cast<float>((exponent + 112) << 23 | fraction << 13);
  return sign != 0 ? -size : size;
}

inline std::uint16_t rounded_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline std::uint16_t rounded_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size <
      0x38800000) {  // below the least normal number: added to 0.5, whose last place is 2^-24
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  const std::uint32_t rounded = size + 0xfff + (size >> 13 & 1);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

}  // namespace vitune
