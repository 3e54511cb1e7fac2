// generator/norm/problem_text.cpp -- Norms as lines of words (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <tuple>

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

// Reads the rows of a matrix that has the type of x.
std::int64_t read_row(const ProblemWords& words, std::string_view key, const NormProblem& p) {
  const auto [type, row] = words.matrix(key, {p.type, p.d});
  if (type == p.type) return row;
  malformed(formatted("{} has the type of x, {}", key, element_name(p.type)));
}

}  // namespace

NormProblem NormProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  NormProblem p;
  p.type = p.out = p.parameters = words.type("x has one");
  p.rows = words.required("m", "rows");
  p.d = words.required("d", "columns, over which is normalised");
  p.rms = words.flag("rms");
  p.weight = words.flag("weight");
  p.bias = words.flag("bias");
  p.residual = words.flag("residual");
  p.sum = words.flag("sum");
  p.statistics = words.flag("stats");
  p.parameters = words.type("params", p.type);
  const auto eps = words.find("eps");
  p.eps = eps ? number_word(*eps, "eps") : default_eps(p.rms);
  p.x_row = read_row(words, "x", p);
  p.residual_row = read_row(words, "residual", p);
  p.sum_row = read_row(words, "sum", p);
  std::tie(p.out, p.out_row) = words.matrix("out", {p.type, p.d});
  if (words.find("second")) {
    std::tie(p.second, p.second_row) = words.matrix("second", {p.out, p.d});
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
  text += row_word("x", p.x_row, p.d);
  if (p.residual) text += given_word("residual", p.residual_row, p.d);
  text += matrix_word("out", p.out, p.type, p.out_row, p.d);
  if (p.sum) text += given_word("sum", p.sum_row, p.d);
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
