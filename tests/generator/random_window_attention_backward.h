// tests/generator/random_window_attention_backward.h -- Seeded random valid gradients of window
// attention with every feature of the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include "generator/window_attention_backward/problem.h"

namespace vitune::testing_support {

// The most of each: images, windows of an image along each side, heads, rows and columns of a
// window.
struct WindowLimits {
  std::int64_t images = 4, windows = 4, heads = 4, window = 14, d = 128;
};

class RandomWindowGradients {
 public:
  explicit RandomWindowGradients(std::uint64_t seed, WindowLimits limits = {})
      : random_(seed), limits_(limits) {}

  // Canonical, as every problem is that comes from outside.
  WindowAttentionBackwardProblem next() {
    WindowAttentionBackwardProblem p;
    p.forward = forward();
    if (!p.forward.bias) return p.canonical();
    if (chance(3)) {
      p.dbias_windows = p.forward.bias->windows;
    } else if (chance(2)) {
      p.dbias_windows = 1;
    } else if (chance(2)) {
      p.table_rows = uniform(1, 40);
    }
    return p.canonical();
  }

  // True once in `n`.
  bool chance(std::int64_t n) { return uniform(1, n) == 1; }

 private:
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  WindowAttentionProblem forward() {
    WindowAttentionProblem p;
    p.type = chance(2) ? ElementType::kBf16 : ElementType::kFp16;
    p.images = uniform(1, limits_.images);
    p.window_rows = uniform(1, limits_.window);
    p.window_columns = chance(2) ? p.window_rows : uniform(1, limits_.window);
    p.heads = uniform(1, limits_.heads);
    p.d = 8 * uniform(1, limits_.d / 8);
    p.layout =
        std::array{WindowLayout::kPacked, WindowLayout::kInterleaved, WindowLayout::kSeparate}.at(
            static_cast<std::size_t>(uniform(0, 2)));
    p.rows = p.window_rows * uniform(1, limits_.windows);
    p.columns = p.window_columns * uniform(1, limits_.windows);
    p.grid = chance(4);
    if (!p.grid && chance(2)) {
      p.rows = std::max<std::int64_t>(p.rows - uniform(0, p.window_rows - 1), 1);
      p.columns = std::max<std::int64_t>(p.columns - uniform(0, p.window_columns - 1), 1);
      p.padding = chance(2);
    }
    if (!p.grid && chance(2)) {
      p.shift_rows = uniform(0, std::min(p.rows, p.window_rows) - 1);
      p.shift_columns = uniform(0, std::min(p.columns, p.window_columns) - 1);
      p.pads_first = chance(2);
    }
    p.scale = std::exp2(static_cast<double>(uniform(-4, 1)));
    if (!chance(3)) p.bias = bias(p);
    return p.canonical();
  }
  WindowBias bias(const WindowAttentionProblem& p) {
    const ElementType type =
        std::array{ElementType::kFp32, ElementType::kFp16, ElementType::kBf16}.at(
            static_cast<std::size_t>(uniform(0, 2)));
    return {type, chance(2) ? 1 : p.windows(), chance(3) ? 1 : p.heads};
  }

  std::mt19937_64 random_;
  WindowLimits limits_;
};

}  // namespace vitune::testing_support
