// generator/linear_weight_grad/problem_text.cpp -- Weight gradients as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/linear_weight_grad/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16", "fp16", "bias", "scale", "add"};
constexpr std::string_view kKeys[] = {"m", "n", "k", "params", "dy", "x", "out", "align"};
constexpr ProblemGrammar kGrammar = {"linear_weight_grad", kFlags, kKeys, "bf16 or fp16",
                                     "linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32"};

ElementType type_word(std::string_view name, std::string_view key) {
  const auto type = element_type_of(name);
  if (type && *type != ElementType::kBool) return *type;
  malformed(formatted("{}={} is no type: use bf16, fp16 or fp32", key, in_quotes(name)));
}

ElementType read_type(const ProblemWords& words) {
  const bool bf16 = words.flag("bf16"), fp16 = words.flag("fp16");
  if (bf16 == fp16) {
    malformed(bf16 ? "two types are given: dy and x have one"
                   : "the type is missing: begin with bf16 or fp16");
  }
  return bf16 ? ElementType::kBf16 : ElementType::kFp16;
}

// The stride of "@776", or `dense` where nothing is said.
std::int64_t read_row(const ProblemWords& words, std::string_view key, std::int64_t dense) {
  const auto given = words.find(key);
  if (!given) return dense;
  if (given->starts_with('@')) return integer_word(given->substr(1), key);
  malformed(formatted("{}={}: give the elements from a row to the next, {}=@{}", key,
                      in_quotes(*given), key, dense));
}

std::string row_text(std::string_view key, std::int64_t row, std::int64_t dense) {
  return row == dense ? std::string() : formatted(" {}=@{}", key, row);
}

}  // namespace

LinearWeightGradProblem LinearWeightGradProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  LinearWeightGradProblem p;
  p.type = p.out = p.parameters = read_type(words);
  p.m = words.required("m", "rows of dy and x");
  p.n = words.required("n", "columns of dy");
  p.k = words.required("k", "columns of x");
  p.bias = words.flag("bias");
  p.scale = words.flag("scale");
  p.add = words.flag("add");
  if (const auto type = words.find("params")) p.parameters = type_word(*type, "params");
  p.dy_row = read_row(words, "dy", p.n);
  p.x_row = read_row(words, "x", p.k);
  if (const auto type = words.find("out")) p.out = type_word(*type, "out");
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string LinearWeightGradProblem::text() const {
  const LinearWeightGradProblem p = canonical();
  std::string text =
      formatted("linear_weight_grad {} m={} n={} k={}", element_name(p.type), p.m, p.n, p.k);
  if (p.bias) text += " bias";
  if (p.scale) text += " scale";
  if (p.parameters != p.type) text += " params=" + element_name(p.parameters);
  if (p.add) text += " add";
  text += row_text("dy", p.dy_row, p.n) + row_text("x", p.x_row, p.k);
  if (p.out != p.type) text += " out=" + element_name(p.out);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
