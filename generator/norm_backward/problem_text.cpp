// generator/norm_backward/problem_text.cpp -- Gradients of norms as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <tuple>

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

// Reads the rows of a matrix whose type another word has said.
std::int64_t read_row(const ProblemWords& words, std::string_view key,
                      const ProblemWords::Matrix& otherwise, std::string_view owner) {
  const auto [type, row] = words.matrix(key, otherwise);
  if (type == otherwise.first) return row;
  malformed(formatted("{} has the type of {}, {}", key, owner, element_name(otherwise.first)));
}

}  // namespace

NormBackwardProblem NormBackwardProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  NormBackwardProblem p;
  p.type = words.type("dy has one");
  p.rows = words.required("m", "rows");
  p.d = words.required("d", "columns, over which is normalised");
  p.rms = words.flag("rms");
  p.weight = words.flag("weight");
  p.frozen = words.flag("frozen");
  p.bias = words.flag("bias");
  p.residual = words.flag("residual");
  p.statistics = words.flag("stats");
  p.parameters = words.type("params", p.type);
  const auto eps = words.find("eps");
  p.eps = eps ? number_word(*eps, "eps") : default_eps(p.rms);
  std::tie(p.stream, p.x_row) = words.matrix("x", {p.type, p.d});
  p.dy_row = read_row(words, "dy", {p.type, p.d}, "the first word");
  p.residual_row = read_row(words, "residual", {p.stream, p.d}, "x");
  p.dx_row = read_row(words, "dx", {p.stream, p.d}, "x");
  if (words.find("second")) {
    std::tie(p.second, p.second_row) = words.matrix("second", {p.stream, p.d});
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
  text += row_word("dy", p.dy_row, p.d);
  text += matrix_word("x", p.stream, p.type, p.x_row, p.d);
  if (p.residual) text += given_word("residual", p.residual_row, p.d);
  text += row_word("dx", p.dx_row, p.d);
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
