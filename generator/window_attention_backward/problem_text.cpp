// generator/window_attention_backward/problem_text.cpp -- Gradients of window attention as lines of
// words (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <vector>

#include "core/format.h"
#include "generator/problem_words.h"
#include "generator/window_attention/problem_internal.h"
#include "generator/window_attention_backward/problem.h"

namespace vitune {
namespace {

// `words` and behind them `own`.
template <std::size_t kWords, std::size_t kOwn>
constexpr auto with(const std::array<std::string_view, kWords>& words,
                    const std::array<std::string_view, kOwn>& own) {
  std::array<std::string_view, kWords + kOwn> all;
  std::ranges::copy(own, std::ranges::copy(words, all.begin()).out);
  return all;
}
constexpr auto kFlags = with(window_internal::kFlags, std::array<std::string_view, 1>{"dbias"});
constexpr auto kKeys =
    with(window_internal::kKeys, std::array<std::string_view, 2>{"dbias", "dtable"});
constexpr std::string_view kExample =
    "window_attention_backward bf16 b=2 image=56x56 window=7 shift=3 h=3 d=32";
constexpr ProblemGrammar kGrammar = {"window_attention_backward", kFlags, kKeys, "bf16 or fp16",
                                     kExample};

// The windows of dbias, from its extents; as many as the bias has where none are given.
std::int64_t read_dbias(std::string_view text, const WindowAttentionProblem& p) {
  if (!p.bias) malformed("dbias needs bias=: it is the gradient of that");
  if (text.empty()) return p.bias->windows;
  const auto dims = split_words(text, "x", true);
  std::vector<std::int64_t> extents;
  for (const std::string_view dim : dims) extents.push_back(integer_word(dim, "dbias"));
  const std::int64_t keys = p.keys();
  if (extents.size() != 4 || extents[0] < 1 || extents[1] != p.bias->heads || extents[2] != keys ||
      extents[3] != keys) {
    malformed(formatted("dbias={}: use WINDOWSx{}x{}x{}, the heads and pixels of the bias",
                        in_quotes(text), p.bias->heads, keys, keys));
  }
  return extents[0];
}

}  // namespace

WindowAttentionBackwardProblem WindowAttentionBackwardProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  WindowAttentionBackwardProblem p;
  p.forward = window_internal::read_problem(words, kExample);
  if (const auto dbias = words.find("dbias")) p.dbias_windows = read_dbias(*dbias, p.forward);
  if (const auto rows = words.number("dtable")) {
    p.table_rows = *rows;
    if (*rows < 1) malformed(formatted("dtable={}: 1 is the least", *rows));
  }
  p.validate();
  return p.canonical();
}

std::string WindowAttentionBackwardProblem::text() const {
  const WindowAttentionBackwardProblem p = canonical();
  constexpr std::string_view kForward = "window_attention";
  std::string text = "window_attention_backward" + p.forward.text().substr(kForward.size());
  if (p.dbias_windows != 0) text += " dbias";
  if (p.dbias_windows != 0 && p.dbias_windows != p.forward.bias->windows) {
    text += formatted("={}x{}x{}x{}", p.dbias_windows, p.forward.bias->heads, p.forward.keys(),
                      p.forward.keys());
  }
  if (p.table_rows != 0) text += formatted(" dtable={}", p.table_rows);
  return text;
}

}  // namespace vitune
