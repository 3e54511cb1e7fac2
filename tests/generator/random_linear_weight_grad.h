// tests/generator/random_linear_weight_grad.h -- Seeded random valid weight gradients with every
// feature of the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "core/error.h"
#include "generator/linear_weight_grad/problem.h"

namespace vitune::testing_support {

// Largest extents of a random weight gradient.
struct WeightGradLimits {
  std::int64_t m = 6000, n = 700, k = 700;
};

class RandomLinearWeightGrad {
 public:
  RandomLinearWeightGrad(std::uint64_t seed, WeightGradLimits limits)
      : random_(seed), limits_(limits) {}

  // Canonical, as every problem is that comes from outside.
  LinearWeightGradProblem next() {
    for (;;) {
      const LinearWeightGradProblem p = drawn().canonical();
      try {
        p.validate();
        return p;
      } catch (const Error&) {
        // A combination that is none, as of poor alignment and numbers of four bytes.
      }
    }
  }

 private:
  LinearWeightGradProblem drawn() {
    LinearWeightGradProblem p;
    p.type = chance(2) ? ElementType::kBf16 : ElementType::kFp16;
    p.out = chance(2) ? ElementType::kFp32 : p.type;
    p.m = extent(limits_.m, 1);
    // Rows of 16 bytes are what the family sm90 asks for.
    const std::int64_t unit = chance(4) ? 1 : 8;
    p.n = extent(limits_.n, unit);
    p.k = extent(limits_.k, unit);
    p.bias = !chance(3);
    p.scale = chance(3);
    p.add = chance(3);
    p.parameters = chance(2)
                       ? p.type
                       : std::array{ElementType::kFp32, ElementType::kFp16,
                                    ElementType::kBf16}[static_cast<std::size_t>(uniform(0, 2))];
    p.dy_row = row(p.n, unit);
    p.x_row = row(p.k, unit);
    p.alignment = chance(4) ? std::int64_t{1} << uniform(1, 4) : 16;
    return p;
  }
  // 1 is the special case everywhere: it comes often.
  std::int64_t extent(std::int64_t most, std::int64_t unit) {
    return chance(8) ? unit : unit * uniform(1, most / unit);
  }
  std::int64_t row(std::int64_t columns, std::int64_t unit) {
    return columns + (chance(3) ? unit * uniform(0, 4) : 0);
  }
  // True once in `n`.
  bool chance(std::int64_t n) { return uniform(1, n) == 1; }
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937_64 random_;
  WeightGradLimits limits_;
};

}  // namespace vitune::testing_support
