// tests/tuner/small_float.h -- Types of 16 bits, all of whose numbers are tried.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace vitune {

struct SmallFloat {
  std::string name;
  int digits, least_exponent;  // of the significand; of the smallest number

  double number(unsigned bits) const {
    if (digits == 8) return std::bit_cast<float>(bits << 16);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double significand = bits & 1023;
    const double size = exponent == 0    ? std::ldexp(significand, -24)
                        : exponent == 31 ? HUGE_VAL
                                         : std::ldexp(significand + 1024, exponent - 25);
    return bits >> 15 ? -size : size;
  }
  std::uint16_t one() const { return digits == 8 ? 0x3f80 : 0x3c00; }
  // The distance between neighbours at `x`.
  double unit(double x) const {
    int exponent = 0;
    std::frexp(x, &exponent);
    return std::ldexp(1.0, std::max(exponent - digits, least_exponent));
  }
  // The bits of all numbers from -most to most.
  std::vector<std::uint16_t> numbers_to(double most) const {
    std::vector<std::uint16_t> numbers;
    for (unsigned bits = 0; bits < 65536; ++bits) {
      if (std::abs(number(bits)) <= most) numbers.push_back(static_cast<std::uint16_t>(bits));
    }
    return numbers;
  }
};

inline const SmallFloat kBf16Numbers{"bf16", 8, -133}, kFp16Numbers{"fp16", 11, -24};

}  // namespace vitune
