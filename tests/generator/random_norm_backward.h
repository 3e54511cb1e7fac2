// tests/generator/random_norm_backward.h -- Seeded random valid gradients of norms with every
// feature of the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "generator/norm/problem.h"
#include "generator/norm_backward/problem.h"

namespace vitune::testing_support {

// Largest extents of random gradients.
struct NormBackwardLimits {
  std::int64_t rows = 20000, d = 4096;
};

class RandomNormBackward {
 public:
  RandomNormBackward(std::uint64_t seed, NormBackwardLimits limits)
      : random_(seed), limits_(limits) {}

  // Canonical, as every problem is that comes from outside.
  NormBackwardProblem next() {
    NormBackwardProblem p;
    p.type = type();
    p.stream = chance(2) ? p.type : type();
    p.parameters = chance(2) ? p.type : type();
    if (chance(2)) p.second = type();
    // Rows of 16 bytes are what wide accesses ask for.
    const std::int64_t unit = chance(3) ? 1 : 8;
    p.factor_rows = p.second && chance(2) ? uniform(1, 9) : 0;
    p.rows = extent(limits_.rows / 9) * (p.factor_rows > 0 ? p.factor_rows : uniform(1, 9));
    p.d = unit * extent(limits_.d / unit);
    p.rms = chance(3);
    p.weight = !chance(4);
    p.frozen = p.weight && chance(4);
    p.bias = chance(2);
    p.residual = chance(2);
    p.statistics = chance(2);
    p.eps = chance(2) ? default_eps(p.rms) : 0.001;
    p.dy_row = chance(9) ? 0 : row(p.d, unit);
    p.x_row = row(p.d, unit);
    if (p.residual) p.residual_row = row(p.d, unit);
    p.dx_row = row(p.d, unit);
    if (p.second) p.second_row = row(p.d, unit);
    p.alignment = chance(4) ? std::int64_t{1} << uniform(1, 4) : 16;
    p.validate();
    return p.canonical();
  }

 private:
  ElementType type() {
    return std::array{ElementType::kFp32, ElementType::kFp16,
                      ElementType::kBf16}[static_cast<std::size_t>(uniform(0, 2))];
  }
  // 1 is the special case everywhere: it comes often.
  std::int64_t extent(std::int64_t most) { return chance(8) ? 1 : uniform(1, most); }
  std::int64_t row(std::int64_t columns, std::int64_t unit) {
    return columns + (chance(3) ? unit * uniform(0, 4) : 0);
  }
  // True once in `n`.
  bool chance(std::int64_t n) { return uniform(1, n) == 1; }
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937_64 random_;
  NormBackwardLimits limits_;
};

}  // namespace vitune::testing_support
