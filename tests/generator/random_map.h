// tests/generator/random_map.h -- Seeded random expressions and maps, tame enough for fp32: their
// values stay of about the size of their operands.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "generator/map/problem.h"

namespace vitune::testing_support {

class RandomMap {
 public:
  explicit RandomMap(std::uint64_t seed) : random_(seed) {}

  // An expression of operands among `letters`, with about `steps` words. Arguments are kept in each
  // function's domain, and the largest value is about 100.
  std::string expression(const std::string& letters, int steps) {
    if (steps <= 0) return leaf(letters);
    const auto of = [&](int left) { return expression(letters, left); };
    switch (uniform(0, 12)) {
      case 0:
        return "mul(tanh(" + of(steps - 3) + "),0.75)";
      case 1:
        return "log(add(abs(" + of(steps - 3) + "),0.5))";
      case 2:
        return "rsqrt(add(abs(" + of(steps - 3) + "),0.25))";
      case 3:
        return "exp(min(" + of(steps - 3) + ",1.5))";
      case 4:
        return "div(" + of(steps - 4) + ",add(abs(" + leaf(letters) + "),1))";
      case 5:
        // A condition of what is exact: one that is rounded may be another one in fp64.
        return "where(lt(" + leaf(letters) + ",0.25)," + of(steps / 2 - 1) + ',' +
               of(steps / 2 - 2) + ')';
      case 6:
      case 7:
        return two() + '(' + of(steps / 2) + ',' + of(steps - steps / 2 - 1) + ')';
      case 8:
        // At 0 a root makes of a rounding error one without bound.
        return "sqrt(add(abs(" + of(steps - 3) + "),0.0625))";
      case 9:
        return "mul(tanh(" + of(steps / 2 - 1) + "),tanh(" + of(steps / 2 - 2) + "))";
      default:
        return one() + '(' + of(steps - 1) + ')';
    }
  }

  // Small, of random types, dimensions, layouts and reductions.
  MapProblem problem() {
    for (;;) {
      try {
        return MapProblem::parse(text());
      } catch (const Error&) {
        // A combination that is none, as of an operand that the expression came to be without.
      }
    }
  }

 private:
  std::string leaf(const std::string& letters) {
    if (chance(4)) return formatted("{}", static_cast<double>(uniform(-300, 300)) / 128);
    return std::string(1, letters[static_cast<std::size_t>(uniform(0, size_of(letters) - 1))]);
  }
  std::string two() { return pick({"add", "sub", "min", "max"}); }
  std::string one() {
    return pick({"neg", "abs", "sin", "cos", "tanh", "sigmoid", "erf", "relu", "gelu", "gelu_tanh",
                 "quick_gelu", "silu", "hardswish"});
  }

  std::string text() {
    std::vector<std::int64_t> extents;
    for (std::int64_t i = uniform(1, 4); i > 0; --i) extents.push_back(extent());
    const std::size_t results = extents.size();
    const std::string reduction = chance(2) ? "" : pick({"sum", "mean", "max", "softmax"});
    for (std::int64_t i = reduction.empty() ? 0 : uniform(1, 2); i > 0; --i) {
      extents.push_back(extent());
    }
    const std::string letters =
        std::string("abc").substr(0, static_cast<std::size_t>(uniform(1, 3)));
    const std::size_t written = reduction == "softmax" ? extents.size() : results;
    std::string text = "map n=" + joined(std::span(extents).first(results), "x");
    if (!reduction.empty()) {
      text += " over=" + joined(std::span(extents).subspan(results), "x") + ' ' + reduction;
    }
    const bool is_16_bit = chance(2);
    const std::string type = pick({"bf16", "fp16"});
    for (const char letter : letters) {
      const std::string own = chance(6)   ? pick({"u8", "bool"})
                              : is_16_bit ? type
                                          : pick({"fp32", "bf16", "fp16"});
      text +=
          formatted(" {}={}@{}", letter, own, layout(extents, extents.size(), results, !chance(3)));
    }
    text += formatted(" out={}@{} x={}", is_16_bit ? type : "fp32",
                      layout(extents, written, results, false),
                      expression(letters, static_cast<int>(uniform(0, 10))));
    if (!reduction.empty() && chance(2)) text += " y=" + expression("r", 3);
    return text + formatted(" align={}", std::int64_t{1} << uniform(1, 4));
  }

  // Strides of some order of the dimensions, with gaps; an operand may be the same along some.
  std::string layout(const std::vector<std::int64_t>& extents, std::size_t count,
                     std::size_t results, bool may_repeat) {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    if (chance(4)) std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::int64_t> strides(count, 0);
    std::int64_t next = chance(6) ? 2 : 1;
    for (std::size_t i = count; i-- > 0;) {
      if (may_repeat && chance(4)) continue;
      strides[order[i]] = next;
      next *= extents[order[i]] + (chance(6) ? uniform(1, 8) : 0);
    }
    std::string text = joined(std::span(strides).first(std::min(count, results)), "x");
    if (count > results) text += '+' + joined(std::span(strides).subspan(results), "x");
    return text;
  }
  static std::int64_t size_of(const std::string& text) {
    return static_cast<std::int64_t>(text.size());
  }

  std::int64_t extent() { return chance(4) ? 1 : chance(2) ? 8 * uniform(1, 5) : uniform(2, 40); }
  std::string pick(std::vector<std::string> words) {
    return words[static_cast<std::size_t>(uniform(0, static_cast<std::int64_t>(words.size()) - 1))];
  }
  // True once in `n`.
  bool chance(std::int64_t n) { return uniform(1, n) == 1; }
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937_64 random_;
};

}  // namespace vitune::testing_support
