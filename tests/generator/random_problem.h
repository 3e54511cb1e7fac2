// tests/generator/random_problem.h -- Seeded random valid problems with every feature of the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "generator/attention/problem.h"

namespace vitune::testing_support {

// Largest extents of a random problem; keep them small where the problem is to be run.
struct ProblemLimits {
  std::int64_t batch = 300, heads = 24, rows = 3000;
};

class RandomProblems {
 public:
  explicit RandomProblems(std::uint64_t seed, ProblemLimits limits = {})
      : random_(seed), limits_(limits) {}

  AttentionProblem next() {
    AttentionProblem p;
    p.dtype = chance(2) ? ElementType::kBf16 : ElementType::kFp16;
    p.batch = extent(limits_.batch);
    p.kv_heads = extent(limits_.heads);
    p.heads = p.kv_heads * (chance(4) ? uniform(1, 4) : 1);
    p.nq = extent(limits_.rows);
    p.nk = chance(2) ? p.nq : extent(limits_.rows);
    p.d = 8 * uniform(1, 16);
    p.causal = chance(4);
    p.scale = chance(2) ? default_scale(p.d) : std::exp2(real(-39.9, 39.9));
    p.lse = chance(4);
    p.alignment = chance(2) ? 16 : std::int64_t{1} << uniform(1, 4);
    p.q = strides(p, p.heads, p.nq, true);
    p.k = strides(p, p.kv_heads, p.nk, true);
    p.v = chance(2) ? p.k : strides(p, p.kv_heads, p.nk, true);
    p.o = strides(p, p.heads, p.nq, false);
    if (chance(3)) {
      p.bias = operand(p, std::array{ElementType::kFp32, ElementType::kFp16, ElementType::kBf16}.at(
                              static_cast<std::size_t>(uniform(0, 2))));
    }
    if (chance(4)) p.mask = operand(p, ElementType::kBool);
    return p;
  }

  // Strides of such a problem's output of so many heads and rows.
  TensorStrides output(const AttentionProblem& p, std::int64_t heads, std::int64_t rows) {
    return strides(p, heads, rows, false);
  }

  // True once in `n`.
  bool chance(std::int64_t n) { return uniform(1, n) == 1; }
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

 private:
  double real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  // 1 is the special case everywhere: it comes often.
  std::int64_t extent(std::int64_t most) { return chance(5) ? 1 : uniform(1, most); }

  // A named layout, or dimensions in any order with gaps; inputs may broadcast.
  TensorStrides strides(const AttentionProblem& p, std::int64_t heads, std::int64_t rows,
                        bool input) {
    const std::int64_t kind = uniform(0, 5);
    if (kind <= 1 && input && p.nq == p.nk) {
      return packed_gqa_strides(p.heads, p.kv_heads, rows, p.d);
    }
    if (kind == 2) return bnhd_strides(heads, rows, p.d);
    if (kind == 3) return bhnd_strides(heads, rows, p.d);
    std::array<std::int64_t, 3> extents = {p.batch, heads, rows}, result{};
    std::array<std::size_t, 3> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random_);
    std::int64_t block = p.d;
    for (const std::size_t i : order) {
      result[i] = block + (chance(2) ? 0 : 8 * uniform(0, 3) + (chance(4) ? uniform(0, 7) : 0));
      block += result[i] * (extents[i] - 1);
    }
    if (input && chance(3)) result[order[2]] = 0;
    return {.batch = result[0], .head = result[1], .row = result[2]};
  }

  ScoreOperand operand(const AttentionProblem& p, ElementType type) {
    ScoreOperand result{.type = type, .batches = window_count(p.batch), .strides = {}};
    const std::array<std::int64_t, 4> dims = {result.batches, p.heads, p.nq, p.nk};
    std::int64_t block = 1;
    for (std::size_t i = 4; i-- > 0;) {
      if (chance(4)) continue;
      result.strides[i] = block + (chance(5) ? uniform(0, 9) : 0);
      block = result.strides[i] * dims[i];
    }
    return result;
  }
  std::int64_t window_count(std::int64_t batch) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t n = 1; n <= batch; ++n) {
      if (batch % n == 0) divisors.push_back(n);
    }
    return divisors[static_cast<std::size_t>(
        uniform(0, static_cast<std::int64_t>(divisors.size()) - 1))];
  }

  std::mt19937_64 random_;
  ProblemLimits limits_;
};

}  // namespace vitune::testing_support
