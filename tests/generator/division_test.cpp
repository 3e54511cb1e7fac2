// tests/generator/division_test.cpp -- Kernels divide by products; here the very code of the
// kernels does, with the host's reciprocals.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "generator/attention/kernel_spec.h"
#include "tests/emulator/cuda_language.h"
// After the language that it is written in.
#include "attention/division.cuh"

namespace vitune {
namespace {

constexpr std::uint32_t kMost = std::numeric_limits<std::int32_t>::max();

// Small ones, and those around powers of two.
std::vector<std::uint32_t> divisors() {
  std::vector<std::uint32_t> result(3000);
  std::iota(result.begin(), result.end(), 1u);
  for (int bits = 12; bits < 31; ++bits) {
    for (int near : {-1, 0, 1}) result.push_back((1u << bits) + static_cast<std::uint32_t>(near));
  }
  result.push_back(kMost);
  return result;
}

TEST(Division, IsExactForAllNumbersBelowTwoToThe31) {
  for (const std::uint32_t divisor : divisors()) {
    const AttentionDivisor by = attention_divisor(divisor);
    const std::uint32_t most = kMost / divisor;
    for (const std::uint32_t multiple : {0u, 1u, 2u, 7u, most / 3, most - 1, most}) {
      if (multiple > most) continue;
      const std::uint32_t first = multiple * divisor;
      const std::uint32_t rest = std::min(kMost - first, divisor - 1);
      ASSERT_EQ(quotient(first, by), multiple) << first << " / " << divisor;
      ASSERT_EQ(quotient(first + rest, by), multiple) << first + rest << " / " << divisor;
      ASSERT_EQ(modulo(first + rest, by), rest) << first + rest << " % " << divisor;
    }
  }
}

}  // namespace
}  // namespace vitune
