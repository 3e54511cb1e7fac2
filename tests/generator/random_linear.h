// tests/generator/random_linear.h -- Seeded random valid linear layers with every feature of the
// text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "core/checked.h"
#include "core/error.h"
#include "generator/linear/problem.h"

namespace vitune::testing_support {

// Largest extents of a random layer.
struct LinearLimits {
  std::int64_t m = 2000, n = 1500, k = 1500;
  bool moments = false;  // whether some write moments of rows, or take them
};

class RandomLinear {
 public:
  RandomLinear(std::uint64_t seed, LinearLimits limits) : random_(seed), limits_(limits) {}

  // Canonical, as every problem is that comes from outside.
  LinearProblem next() {
    for (;;) {
      const LinearProblem p = drawn().canonical();
      try {
        p.validate();
        return p;
      } catch (const Error&) {
        // A combination that is none, as of poor alignment and numbers of four bytes.
      }
    }
  }

 private:
  LinearProblem drawn() {
    LinearProblem p;
    p.type = chance(2) ? ElementType::kBf16 : ElementType::kFp16;
    p.out = chance(6) ? ElementType::kFp32 : p.type;
    p.m = extent(limits_.m, 1);
    // Rows of 16 bytes are what most families ask for.
    const std::int64_t unit = chance(4) ? 1 : 8;
    p.n = extent(limits_.n, unit);
    p.k = extent(limits_.k, unit);
    p.transposed = chance(4);
    p.bias = chance(2);
    p.scale = chance(4);
    p.residual = chance(2);
    p.aux = chance(8);
    p.activation =
        chance(2) ? LinearActivation::kNone : static_cast<LinearActivation>(uniform(1, 5));
    p.norm = chance(3) ? static_cast<LinearNorm>(uniform(1, 2)) : LinearNorm::kNone;
    p.parameters = chance(2)
                       ? p.type
                       : std::array{ElementType::kFp32, ElementType::kFp16,
                                    ElementType::kBf16}[static_cast<std::size_t>(uniform(0, 2))];
    periods(p);
    p.x_row = row(p.k, unit);
    p.w_row = row(p.w_columns(), unit);
    p.residual_row = p.residual ? row(p.n, unit) : 0;
    p.out_row = row(p.n, unit);
    p.aux_row = p.aux ? row(p.n, unit) : 0;
    p.alignment = chance(4) ? std::int64_t{1} << uniform(1, 4) : 16;
    if (p.norm == LinearNorm::kNone && chance(4)) {
      p.factor_rows = p.is_periodic() ? p.period() : divisor(p.m);
    }
    if (chance(5)) return with_derivative(p, unit);
    return limits_.moments && chance(6) ? with_moments(p) : p;
  }
  // The gradient of an activation's argument, to which nothing else is done.
  LinearProblem with_derivative(const LinearProblem& drawn, std::int64_t unit) {
    LinearProblem p;
    p.type = p.out = p.parameters = drawn.type;
    p.m = drawn.m;
    p.n = drawn.n;
    p.k = drawn.k;
    p.transposed = chance(2);
    p.derivative = static_cast<LinearActivation>(uniform(1, 5));
    p.post = chance(2);
    p.x_row = row(p.k, unit);
    p.w_row = row(p.w_columns(), unit);
    p.out_row = row(p.n, unit);
    p.pre_row = row(p.n, unit);
    p.post_row = p.post ? row(p.n, unit) : 0;
    p.alignment = drawn.alignment;
    return p;
  }
  std::int64_t divisor(std::int64_t number) {
    std::int64_t found = uniform(1, std::min<std::int64_t>(number, 300));
    while (number % found != 0) --found;
    return found;
  }
  // Written, taken or both, of what the kernels that know of them take.
  LinearProblem with_moments(LinearProblem p) {
    constexpr std::int64_t kColumns = LinearProblem::kMomentColumns;
    p.out = p.type;
    p.transposed = p.aux = false;
    p.factor_rows = 0;
    p.alignment = 16;
    p.n = ceil_div(p.n, kColumns) * kColumns;
    p.k = ceil_div(p.k, kColumns) * kColumns;
    p.x_row = row(p.k, 8);
    p.w_row = row(p.k, 8);
    p.residual_row = p.residual ? row(p.n, 8) : 0;
    p.out_row = row(p.n, 8);
    p.aux_row = 0;
    const auto block = [&](std::int64_t columns) {
      const std::int64_t wide = kColumns * uniform(1, 6);
      return columns % wide == 0 ? wide : kColumns;
    };
    p.moments = chance(2) ? block(p.n) : 0;
    if (p.moments == 0 || chance(2)) {
      p.norm = LinearNorm::kMoments;
      p.given_moments = block(p.k);
      p.eps = chance(2) ? 1e-5 : 1e-6;
    }
    return p;
  }
  // Rows of a residual that repeat, runs of the result's rows with gaps between them, or both.
  void periods(LinearProblem& p) {
    if (!chance(5)) return;
    const std::int64_t period = uniform(1, 40), runs = uniform(1, 6);
    p.m = period * runs;
    const bool repeats = p.residual && chance(2);
    if (repeats) p.residual_period = period;
    if (repeats && chance(2)) return;
    p.out_period = period;
    p.out_spread = period + uniform(0, 3);
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
  LinearLimits limits_;
};

}  // namespace vitune::testing_support
