// generator/norm/problem_text.cpp -- Norms as lines of words (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/format.h"
#include "generator/norm/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16", "fp16",     "fp32", "rms",  "weight",
                                       "bias", "residual", "sum",  "stats"};
constexpr std::string_view kKeys[] = {"m",   "d",   "params", "eps",      "x",
                                      "out", "sum", "second", "residual", "align"};
constexpr ProblemGrammar kGrammar = {"norm", kFlags, kKeys, "bf16, fp16 or fp32",
                                     "norm bf16 m=6304 d=768 weight bias"};

ElementType type_word(std::string_view name, std::string_view key) {
  const auto type = element_type_of(name);
  if (type && *type != ElementType::kBool) return *type;
  malformed(formatted("{}={} is no type: use bf16, fp16 or fp32", key, in_quotes(name)));
}

ElementType read_type(const ProblemWords& words) {
  const bool bf16 = words.flag("bf16"), fp16 = words.flag("fp16"), fp32 = words.flag("fp32");
  if (int{bf16} + int{fp16} + int{fp32} != 1) {
    malformed(bf16 || fp16 || fp32 ? "two types are given: x has one"
                                   : "the type is missing: begin with bf16, fp16 or fp32");
  }
  return bf16 ? ElementType::kBf16 : fp16 ? ElementType::kFp16 : ElementType::kFp32;
}

// Where a matrix lies: "fp32@1536", or the type or the stride alone.
struct Matrix {
  ElementType type;
  std::int64_t row;
};
Matrix read_matrix(const ProblemWords& words, std::string_view key, const Matrix& otherwise) {
  Matrix matrix = otherwise;
  const std::string_view given = words.find(key).value_or(std::string_view());
  const std::size_t at = std::min(given.find('@'), given.size());
  if (at > 0) matrix.type = type_word(given.substr(0, at), key);
  if (at < given.size()) matrix.row = integer_word(given.substr(at + 1), key);
  return matrix;
}

// Reads the rows of a tensor that has the type of x.
std::int64_t read_row(const ProblemWords& words, std::string_view key, const NormProblem& p) {
  const Matrix matrix = read_matrix(words, key, {p.type, p.d});
  if (matrix.type == p.type) return matrix.row;
  malformed(formatted("{} has the type of x, {}", key, element_name(p.type)));
}

bool is_given(const ProblemWords& words, std::string_view key) {
  return words.flag(key) || words.find(key).has_value();
}

std::string matrix_text(std::string_view key, ElementType type, ElementType usual, std::int64_t row,
                        std::int64_t d) {
  if (type == usual && row == d) return {};
  return formatted(" {}={}{}", key, type == usual ? "" : element_name(type),
                   row == d ? "" : formatted("@{}", row));
}

// A word that says that a matrix is there.
std::string given_text(std::string_view key, std::int64_t row, std::int64_t d) {
  return row == d ? formatted(" {}", key) : formatted(" {}=@{}", key, row);
}

}  // namespace

NormProblem NormProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  NormProblem p;
  p.type = p.out = p.parameters = read_type(words);
  p.rows = words.required("m", "rows");
  p.d = words.required("d", "columns, over which is normalised");
  p.rms = words.flag("rms");
  p.weight = words.flag("weight");
  p.bias = words.flag("bias");
  p.residual = is_given(words, "residual");
  p.sum = is_given(words, "sum");
  p.statistics = words.flag("stats");
  if (const auto type = words.find("params")) p.parameters = type_word(*type, "params");
  const auto eps = words.find("eps");
  p.eps = eps ? number_word(*eps, "eps") : default_eps(p.rms);
  p.x_row = read_row(words, "x", p);
  p.residual_row = read_row(words, "residual", p);
  p.sum_row = read_row(words, "sum", p);
  const Matrix out = read_matrix(words, "out", {p.type, p.d});
  p.out = out.type;
  p.out_row = out.row;
  if (words.find("second")) {
    const Matrix second = read_matrix(words, "second", {p.out, p.d});
    p.second = second.type;
    p.second_row = second.row;
  }
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string NormProblem::text() const {
  const NormProblem p = canonical();
  std::string text = formatted("norm {} m={} d={}", element_name(p.type), p.rows, p.d);
  if (p.rms) text += " rms";
  if (p.weight) text += " weight";
  if (p.bias) text += " bias";
  if (p.parameters != p.type) text += " params=" + element_name(p.parameters);
  text += matrix_text("x", p.type, p.type, p.x_row, p.d);
  if (p.residual) text += given_text("residual", p.residual_row, p.d);
  text += matrix_text("out", p.out, p.type, p.out_row, p.d);
  if (p.sum) text += given_text("sum", p.sum_row, p.d);
  if (p.second) {
    text += formatted(" second={}", element_name(*p.second));
    if (p.second_row != p.d) text += formatted("@{}", p.second_row);
  }
  if (p.statistics) text += " stats";
  if (p.eps != default_eps(p.rms)) text += " eps=" + shortest(p.eps);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
