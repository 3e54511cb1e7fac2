// generator/linear/problem_text.cpp -- Linear layers as lines of words (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/format.h"
#include "generator/linear/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16",     "fp16", "bias", "scale",
                                       "residual", "aux",  "wt",   "post"};
constexpr std::string_view kKeys[] = {
    "norm", "m",    "n",   "k",     "act", "params",  "x",    "w",   "wt",   "residual", "period",
    "out",  "rows", "aux", "align", "eps", "moments", "dact", "pre", "post", "factor"};
constexpr double kDefaultEps = 1e-5;  // LayerNorm's
constexpr ProblemGrammar kGrammar = {"linear", kFlags, kKeys, "bf16 or fp16",
                                     "linear bf16 m=6304 n=3072 k=768 bias act=gelu"};

constexpr std::array<std::pair<std::string_view, LinearActivation>, 6> kActivations = {{
    {"none", LinearActivation::kNone},
    {"relu", LinearActivation::kRelu},
    {"gelu", LinearActivation::kGelu},
    {"gelu_tanh", LinearActivation::kGeluTanh},
    {"quick_gelu", LinearActivation::kQuickGelu},
    {"silu", LinearActivation::kSilu},
}};

LinearActivation activation_of(std::string_view key, std::string_view name) {
  for (const auto& [word, activation] : kActivations) {
    if (word == name) return activation;
  }
  malformed(formatted("{}={}: use none, relu, gelu, gelu_tanh, quick_gelu or silu", key,
                      in_quotes(name)));
}

std::string_view activation_name(LinearActivation activation) {
  return kActivations[static_cast<std::size_t>(activation)].first;
}

constexpr std::array<std::pair<std::string_view, LinearNorm>, 4> kNorms = {{
    {"none", LinearNorm::kNone},
    {"layer", LinearNorm::kLayer},
    {"rms", LinearNorm::kRms},
    {"moments", LinearNorm::kMoments},
}};

LinearNorm norm_of(std::string_view name) {
  for (const auto& [word, norm] : kNorms) {
    if (word == name) return norm;
  }
  malformed(formatted("norm={}: use none, layer, rms or moments:32", in_quotes(name)));
}

// Columns of a block of moments.
std::int64_t block_word(std::string_view word, std::string_view key) {
  const std::int64_t columns = integer_word(word, key);
  if (columns > 0) return columns;
  malformed(formatted("{}={}: give the columns of a block, a multiple of 32", key, columns));
}

// "layer", or "moments:192": of blocks of 192 columns.
void read_norm(const ProblemWords& words, LinearProblem& p) {
  const auto name = words.find("norm");
  if (!name) return;
  const std::size_t colon = std::min(name->find(':'), name->size());
  p.norm = norm_of(name->substr(0, colon));
  const bool has_block = colon < name->size();
  if (has_block != (p.norm == LinearNorm::kMoments)) {
    malformed("norm=moments:192 has the columns of a block of the moments, no other norm has");
  }
  if (has_block) p.given_moments = block_word(name->substr(colon + 1), "norm=moments:");
}

// "dact=gelu pre=@776 post": whose derivative, and the matrices beside it.
void read_derivative(const ProblemWords& words, LinearProblem& p) {
  if (const auto name = words.find("dact")) p.derivative = activation_of("dact", *name);
  if (!p.has_pre() && words.find("pre")) {
    malformed("pre= is where dact= has its argument: say of which activation, dact=gelu");
  }
  p.pre_row = words.row("pre", p.n);
  p.post = words.flag("post");
  p.post_row = words.row("post", p.n);
}

// "196+1": runs of 196 rows, with one row between them.
void read_runs(const ProblemWords& words, LinearProblem& p) {
  const auto given = words.find("rows");
  if (!given) return;
  const std::size_t plus = given->find('+');
  if (plus == given->npos) {
    malformed(formatted("rows={}: write rows=196+1 for runs of 196 rows with one between them",
                        in_quotes(*given)));
  }
  p.out_period = integer_word(given->substr(0, plus), "rows");
  const std::int64_t gap = integer_word(given->substr(plus + 1), "rows");
  constexpr std::int64_t kMost = 2147483647;
  if (p.out_period < 1 || p.out_period > kMost || gap < 0 || gap > kMost) {
    malformed(formatted("rows={}: runs of 1 row or more, and 0 rows or more between them",
                        in_quotes(*given)));
  }
  p.out_spread = p.out_period + gap;
}

}  // namespace

LinearProblem LinearProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  LinearProblem p;
  p.type = p.out = p.parameters = words.type("x and w have one");
  p.m = words.required("m", "rows of x");
  p.n = words.required("n", "columns of the result");
  p.k = words.required("k", "columns of x");
  p.bias = words.flag("bias");
  p.scale = words.flag("scale");
  p.residual = words.flag("residual");
  p.aux = words.flag("aux");
  p.transposed = words.flag("wt");
  if (p.transposed && words.find("w")) malformed("w= and wt are given: w is [n, k], wt [k, n]");
  if (const auto name = words.find("act")) p.activation = activation_of("act", *name);
  read_norm(words, p);
  read_derivative(words, p);
  if (const auto columns = words.find("moments")) p.moments = block_word(*columns, "moments");
  if (const auto eps = words.find("eps")) {
    if (p.norm != LinearNorm::kMoments) malformed("eps= is for norm=moments");
    p.eps = number_word(*eps, "eps");
  } else if (p.norm == LinearNorm::kMoments) {
    p.eps = kDefaultEps;
  }
  p.parameters = words.type("params", p.type);
  p.x_row = words.row("x", p.k);
  p.w_row = words.row(p.transposed ? "wt" : "w", p.w_columns());
  p.residual_row = words.row("residual", p.n);
  p.aux_row = words.row("aux", p.n);
  p.residual_period = words.number("period").value_or(0);
  if (words.find("period") && p.residual_period < 1) malformed("period=: 1 is the least");
  p.factor_rows = words.number("factor").value_or(0);
  if (words.find("factor") && p.factor_rows < 1) malformed("factor=: 1 is the least");
  std::tie(p.out, p.out_row) = words.matrix("out", {p.type, p.n});
  read_runs(words, p);
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string LinearProblem::text() const {
  const LinearProblem p = canonical();
  std::string text = formatted("linear {} m={} n={} k={}", element_name(p.type), p.m, p.n, p.k);
  if (p.norm != LinearNorm::kNone) {
    text += formatted(" norm={}", kNorms[static_cast<std::size_t>(p.norm)].first);
    if (p.given_moments > 0) text += formatted(":{}", p.given_moments);
  }
  if (p.norm == LinearNorm::kMoments && p.eps != kDefaultEps) text += " eps=" + shortest(p.eps);
  if (p.bias) text += " bias";
  if (p.activation != LinearActivation::kNone) {
    text += formatted(" act={}", activation_name(p.activation));
  }
  if (p.has_pre()) text += formatted(" dact={}", activation_name(p.derivative));
  if (p.scale) text += " scale";
  if (p.parameters != p.type) text += " params=" + element_name(p.parameters);
  text += row_word("x", p.x_row, p.k);
  text += p.transposed ? given_word("wt", p.w_row, p.n) : row_word("w", p.w_row, p.k);
  if (p.has_pre()) text += row_word("pre", p.pre_row, p.n);
  if (p.factor_rows > 0) text += formatted(" factor={}", p.factor_rows);
  if (p.residual) text += given_word("residual", p.residual_row, p.n);
  if (p.residual_period > 0) text += formatted(" period={}", p.residual_period);
  text += matrix_word("out", p.out, p.type, p.out_row, p.n);
  if (p.out_period > 0) text += formatted(" rows={}+{}", p.out_period, p.out_spread - p.out_period);
  if (p.aux) text += given_word("aux", p.aux_row, p.n);
  if (p.post) text += given_word("post", p.post_row, p.n);
  if (p.moments > 0) text += formatted(" moments={}", p.moments);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
