// generator/norm_backward/problem_text.cpp -- Gradients of norms as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/format.h"
#include "generator/norm/problem.h"
#include "generator/norm_backward/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16", "fp16",   "fp32",     "rms",  "weight",
                                       "bias", "frozen", "residual", "stats"};
constexpr std::string_view kKeys[] = {"m",        "d",  "params", "eps",    "dy",   "x",
                                      "residual", "dx", "second", "factor", "align"};
constexpr ProblemGrammar kGrammar = {"norm_backward", kFlags, kKeys, "bf16, fp16 or fp32",
                                     "norm_backward bf16 m=12608 d=768 weight bias residual"};

ElementType type_word(std::string_view name, std::string_view key) {
  const auto type = element_type_of(name);
  if (type && *type != ElementType::kBool) return *type;
  malformed(formatted("{}={} is no type: use bf16, fp16 or fp32", key, in_quotes(name)));
}

ElementType read_type(const ProblemWords& words) {
  const bool bf16 = words.flag("bf16"), fp16 = words.flag("fp16"), fp32 = words.flag("fp32");
  if (int{bf16} + int{fp16} + int{fp32} != 1) {
    malformed(bf16 || fp16 || fp32 ? "two types are given: dy has one"
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

// Reads the rows of a matrix whose type another word has said.
std::int64_t read_row(const ProblemWords& words, std::string_view key, const Matrix& otherwise,
                      std::string_view owner) {
  const Matrix matrix = read_matrix(words, key, otherwise);
  if (matrix.type == otherwise.type) return matrix.row;
  malformed(formatted("{} has the type of {}, {}", key, owner, element_name(otherwise.type)));
}

std::string row_text(std::string_view key, std::int64_t row, std::int64_t d) {
  return row == d ? std::string() : formatted(" {}=@{}", key, row);
}

}  // namespace

NormBackwardProblem NormBackwardProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  NormBackwardProblem p;
  p.type = p.parameters = read_type(words);
  p.rows = words.required("m", "rows");
  p.d = words.required("d", "columns, over which is normalised");
  p.rms = words.flag("rms");
  p.weight = words.flag("weight");
  p.frozen = words.flag("frozen");
  p.bias = words.flag("bias");
  p.residual = words.flag("residual");
  p.statistics = words.flag("stats");
  if (const auto type = words.find("params")) p.parameters = type_word(*type, "params");
  const auto eps = words.find("eps");
  p.eps = eps ? number_word(*eps, "eps") : default_eps(p.rms);
  const Matrix x = read_matrix(words, "x", {p.type, p.d});
  p.stream = x.type;
  p.x_row = x.row;
  p.dy_row = read_row(words, "dy", {p.type, p.d}, "the first word");
  p.residual_row = read_row(words, "residual", {p.stream, p.d}, "x");
  p.dx_row = read_row(words, "dx", {p.stream, p.d}, "x");
  if (words.find("second")) {
    const Matrix second = read_matrix(words, "second", {p.stream, p.d});
    p.second = second.type;
    p.second_row = second.row;
  }
  if (const auto rows = words.number("factor")) {
    if (*rows < 1) malformed(formatted("factor={}: 1 row is the least", *rows));
    p.factor_rows = *rows;
  }
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string NormBackwardProblem::text() const {
  const NormBackwardProblem p = canonical();
  std::string text = formatted("norm_backward {} m={} d={}", element_name(p.type), p.rows, p.d);
  if (p.rms) text += " rms";
  if (p.weight) text += " weight";
  if (p.frozen) text += " frozen";
  if (p.bias) text += " bias";
  if (p.parameters != p.type) text += " params=" + element_name(p.parameters);
  text += row_text("dy", p.dy_row, p.d);
  if (p.stream != p.type || p.x_row != p.d) {
    text += formatted(" x={}{}", p.stream == p.type ? "" : element_name(p.stream),
                      p.x_row == p.d ? "" : formatted("@{}", p.x_row));
  }
  if (p.residual) {
    text += p.residual_row == p.d ? " residual" : formatted(" residual=@{}", p.residual_row);
  }
  text += row_text("dx", p.dx_row, p.d);
  if (p.second) {
    text += formatted(" second={}", element_name(*p.second));
    if (p.second_row != p.d) text += formatted("@{}", p.second_row);
  }
  if (p.factor_rows > 0) text += formatted(" factor={}", p.factor_rows);
  if (p.statistics) text += " stats";
  if (p.eps != default_eps(p.rms)) text += " eps=" + shortest(p.eps);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
