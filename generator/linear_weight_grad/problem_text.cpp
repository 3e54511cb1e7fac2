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

}  // namespace

LinearWeightGradProblem LinearWeightGradProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  LinearWeightGradProblem p;
  p.type = p.out = p.parameters = words.type("dy and x have one");
  p.m = words.required("m", "rows of dy and x");
  p.n = words.required("n", "columns of dy");
  p.k = words.required("k", "columns of x");
  p.bias = words.flag("bias");
  p.scale = words.flag("scale");
  p.add = words.flag("add");
  p.parameters = words.type("params", p.type);
  p.dy_row = words.row("dy", p.n);
  p.x_row = words.row("x", p.k);
  p.out = words.type("out", p.type);
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
  text += row_word("dy", p.dy_row, p.n) + row_word("x", p.x_row, p.k);
  if (p.out != p.type) text += " out=" + element_name(p.out);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
