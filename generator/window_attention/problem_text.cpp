// generator/window_attention/problem_text.cpp -- Window attention as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "core/format.h"
#include "generator/problem_words.h"
#include "generator/window_attention/problem.h"
#include "generator/window_attention/problem_internal.h"

namespace vitune {
namespace {

constexpr std::string_view kExample =
    "window_attention bf16 b=2 image=56x56 window=7 shift=3 h=3 d=32";
constexpr ProblemGrammar kGrammar = {"window_attention", window_internal::kFlags,
                                     window_internal::kKeys, "bf16 or fp16", kExample};

constexpr std::pair<WindowLayout, std::string_view> kLayouts[] = {
    {WindowLayout::kPacked, "packed"},
    {WindowLayout::kInterleaved, "interleaved"},
    {WindowLayout::kSeparate, "separate"},
};

// "7x5", or "7" for a square.
std::pair<std::int64_t, std::int64_t> two_numbers(std::string_view text, std::string_view key) {
  const auto parts = split_words(text, "x", true);
  if (parts.size() > 2) {
    malformed(formatted("{}={}: use ROWSxCOLUMNS, or one number for both", key, in_quotes(text)));
  }
  return {integer_word(parts.front(), key), integer_word(parts.back(), key)};
}

std::pair<std::int64_t, std::int64_t> required_pair(const ProblemWords& words, std::string_view key,
                                                    std::string_view meaning,
                                                    std::string_view example) {
  if (const auto text = words.find(key)) return two_numbers(*text, key);
  malformed(formatted("{}= ({}) is missing: try '{}'", key, meaning, example));
}

WindowLayout read_layout(const ProblemWords& words) {
  const auto given = words.find("layout");
  if (!given) return WindowLayout::kPacked;
  for (const auto& [layout, name] : kLayouts) {
    if (*given == name) return layout;
  }
  malformed(formatted("layout={}: use packed, interleaved or separate", in_quotes(*given)));
}

WindowBias read_bias(std::string_view text, std::int64_t keys) {
  const std::size_t colon = text.find(':');
  const auto type = element_type_of(text.substr(0, colon));
  const auto dims = colon == std::string_view::npos
                        ? std::vector<std::string_view>()
                        : split_words(text.substr(colon + 1), "x", true);
  if (!type || dims.size() != 4) {
    malformed(formatted("bias={}: use TYPE:WINDOWSxHEADSxNxN, as bf16:1x3x49x49", in_quotes(text)));
  }
  for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
    const std::int64_t extent = integer_word(dims[i], "bias");
    if (extent == keys) continue;
    malformed(formatted("bias={}: its last two extents are the {} pixels of a window",
                        in_quotes(text), keys));
  }
  return {*type, integer_word(dims[0], "bias"), integer_word(dims[1], "bias")};
}

std::string pair_text(std::int64_t rows, std::int64_t columns) {
  return formatted("{}x{}", rows, columns);
}

}  // namespace

WindowAttentionProblem window_internal::read_problem(const ProblemWords& words,
                                                     std::string_view example) {
  WindowAttentionProblem p;
  p.type = words.type("q, k and v have one");
  p.images = words.required("b", "images");
  std::tie(p.rows, p.columns) =
      required_pair(words, "image", "rows and columns of an image", example);
  std::tie(p.window_rows, p.window_columns) =
      required_pair(words, "window", "rows and columns of a window", example);
  if (const auto shift = words.find("shift")) {
    std::tie(p.shift_rows, p.shift_columns) = two_numbers(*shift, "shift");
  }
  p.heads = words.required("h", "heads");
  p.d = words.required("d", "head size");
  p.layout = read_layout(words);
  p.grid = words.flag("grid");
  p.padding = words.flag("padding");
  p.pads_first = words.flag("pad_first");
  const auto scale = words.find("scale");
  p.scale = scale ? number_word(*scale, "scale")
                  : 1.0 / std::sqrt(std::max(static_cast<double>(p.d), 1.0));
  p.validate();  // the bias is read by the sizes
  if (const auto bias = words.find("bias")) p.bias = read_bias(*bias, p.keys());
  p.validate();
  return p.canonical();
}

WindowAttentionProblem WindowAttentionProblem::parse(std::string_view text) {
  return window_internal::read_problem(ProblemWords(text, kGrammar), kExample);
}

std::string WindowAttentionProblem::text() const {
  const WindowAttentionProblem p = canonical();
  std::string text =
      formatted("window_attention {} b={} image={} window={}", element_name(p.type), p.images,
                pair_text(p.rows, p.columns), pair_text(p.window_rows, p.window_columns));
  if (p.is_shifted()) text += " shift=" + pair_text(p.shift_rows, p.shift_columns);
  text += formatted(" h={} d={}", p.heads, p.d);
  for (const auto& [known, name] : kLayouts) {
    if (p.layout == known && known != WindowLayout::kPacked) {
      text += formatted(" layout={}", name);
    }
  }
  if (p.grid) text += " grid";
  if (p.padding) text += " padding";
  if (p.pads_first) text += " pad_first";
  if (p.scale != 1.0 / std::sqrt(static_cast<double>(p.d))) text += " scale=" + shortest(p.scale);
  if (p.bias) {
    text += formatted(" bias={}:{}x{}x{}x{}", element_name(p.bias->type), p.bias->windows,
                      p.bias->heads, p.keys(), p.keys());
  }
  return text;
}

}  // namespace vitune
