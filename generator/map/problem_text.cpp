// generator/map/problem_text.cpp -- Maps as lines of words (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "core/format.h"
#include "generator/map/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"sum", "mean", "max", "softmax"};
constexpr std::string_view kKeys[] = {"n", "over", "a", "b", "c", "d",   "e",
                                      "f", "g",    "h", "x", "y", "out", "align"};
constexpr ProblemGrammar kGrammar = {"map", kFlags, kKeys, "a=bf16, a type for each operand",
                                     "map n=32x197x768 a=bf16 b=bf16@0x768x1 x=add(a,b) out=bf16"};

constexpr std::size_t kMostDimensions = 9;

std::vector<std::int64_t> numbers_of(std::string_view text, std::string_view key) {
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  for (const std::string_view word : split_words(text, "x", true)) {
    if (numbers.size() == kMostDimensions) malformed(formatted("{}: too many dimensions", key));
    numbers.push_back(integer_word(word, key));
  }
  return numbers;
}

MapReduction read_reduction(const ProblemWords& words) {
  std::vector<MapReduction> given;
  for (std::size_t i = 0; i < std::size(kFlags); ++i) {
    if (words.flag(kFlags[i])) given.push_back(static_cast<MapReduction>(i + 1));
  }
  if (given.size() > 1)
    malformed(
        "two reductions are given: a map has one of sum, mean, max, "
        "softmax");
  return given.empty() ? kMapNone : given.front();
}

ElementType type_word(std::string_view name, std::string_view key) {
  if (name == element_name(ElementType::kU8)) return ElementType::kU8;
  if (const auto type = element_type_of(name)) return *type;
  malformed(formatted("{}={} is no type: use bf16, fp16, fp32, u8 or bool", key, in_quotes(name)));
}

// "bf16", or with strides: "bf16@768x1", behind "+" those along what is reduced.
MapOperand read_operand(std::string_view text, std::string_view key, const MapProblem& p,
                        std::size_t dense) {
  MapOperand operand;
  const std::size_t at = std::min(text.find('@'), text.size());
  operand.type = type_word(text.substr(0, at), key);
  operand.strides = dense_strides(p.extents, dense);
  if (at == text.size()) return operand;
  const std::string_view given = text.substr(at + 1);
  const std::size_t plus = std::min(given.find('+'), given.size());
  std::vector<std::int64_t> strides = numbers_of(given.substr(0, plus), key);
  const std::vector<std::int64_t> along =
      plus < given.size() ? numbers_of(given.substr(plus + 1), key) : std::vector<std::int64_t>();
  if (strides.size() != p.results || along.size() != dense - std::min(dense, p.results)) {
    malformed(formatted("{}={}: give a stride for each of {} dimensions{}", key, in_quotes(text),
                        p.results,
                        dense > p.results ? formatted(", and behind '+' for each of {} that are "
                                                      "reduced",
                                                      dense - p.results)
                                          : ""));
  }
  strides.insert(strides.end(), along.begin(), along.end());
  strides.resize(p.rank(), 0);
  operand.strides = std::move(strides);
  return operand;
}

std::string operand_text(std::string_view key, const MapOperand& operand, const MapProblem& p,
                         std::size_t dense) {
  std::string text = formatted(" {}={}", key, element_name(operand.type));
  if (operand.strides == dense_strides(p.extents, dense)) return text;
  const auto first = operand.strides.begin(), last = first + static_cast<std::ptrdiff_t>(p.results);
  text += '@' + joined(std::vector<std::int64_t>(first, last), "x");
  if (dense > p.results) {
    text += '+' + joined(std::vector<std::int64_t>(last, operand.strides.end()), "x");
  }
  return text;
}

}  // namespace

MapProblem MapProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  const auto required = [&](std::string_view key, std::string_view meaning) {
    if (const auto value = words.find(key)) return *value;
    malformed(formatted("{}= ({}) is missing: try '{}'", key, meaning, kGrammar.example));
  };
  MapProblem p;
  p.extents = numbers_of(required("n", "the extents of the result"), "n");
  p.results = p.extents.size();
  for (const std::int64_t extent : numbers_of(words.find("over").value_or(""), "over")) {
    p.extents.push_back(extent);
  }
  p.reduction = read_reduction(words);
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    const std::string_view key = kMapLetters.substr(i, 1);
    if (const auto given = words.find(key)) p.operands[i] = read_operand(*given, key, p, p.rank());
  }
  p.out = read_operand(required("out", "the type of the result"), "out", p, p.out_rank());
  p.x = Expression::parse(required("x", "the expression"), kMapLetters, "x");
  if (const auto y = words.find("y")) p.y = Expression::parse(*y, "r", "y");
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string MapProblem::text() const {
  const MapProblem p = canonical();
  const auto split = p.extents.begin() + static_cast<std::ptrdiff_t>(p.results);
  std::string text = "map n=" + joined(std::vector<std::int64_t>(p.extents.begin(), split), "x");
  if (p.reduction != kMapNone) {
    text += " over=" + joined(std::vector<std::int64_t>(split, p.extents.end()), "x");
  }
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    if (p.operands[i]) text += operand_text(kMapLetters.substr(i, 1), *p.operands[i], p, p.rank());
  }
  text += " x=" + p.x.text();
  if (p.reduction != kMapNone) text += formatted(" {}", kFlags[p.reduction - 1]);
  if (p.y) text += " y=" + p.y->text();
  text += operand_text("out", p.out, p, p.out_rank());
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
