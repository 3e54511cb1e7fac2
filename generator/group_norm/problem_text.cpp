// generator/group_norm/problem_text.cpp -- Group norms as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/group_norm/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16",   "fp16", "fp32", "nhwc",
                                       "weight", "bias", "silu", "mish"};
constexpr std::string_view kKeys[] = {"n", "c", "l", "g", "params", "eps", "align"};
constexpr ProblemGrammar kGrammar = {"group_norm", kFlags, kKeys, "bf16, fp16 or fp32",
                                     "group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu"};

GroupNormActivation read_activation(const ProblemWords& words) {
  const bool silu = words.flag("silu"), mish = words.flag("mish");
  if (silu && mish) malformed("silu and mish are given: the result goes through one");
  if (silu) return GroupNormActivation::kSilu;
  return mish ? GroupNormActivation::kMish : GroupNormActivation::kNone;
}

}  // namespace

GroupNormProblem GroupNormProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  GroupNormProblem p;
  p.type = words.type("x has one");
  p.images = words.required("n", "images");
  p.channels = words.required("c", "channels");
  p.positions = words.required("l", "positions of an image, height times width");
  p.groups = words.required("g", "groups of channels");
  p.nhwc = words.flag("nhwc");
  p.weight = words.flag("weight");
  p.bias = words.flag("bias");
  p.parameters = words.type("params", p.type);
  p.activation = read_activation(words);
  const auto eps = words.find("eps");
  p.eps = eps ? number_word(*eps, "eps") : kGroupNormEps;
  p.alignment = words.number("align").value_or(16);
  p.validate();
  return p.canonical();
}

std::string GroupNormProblem::text() const {
  const GroupNormProblem p = canonical();
  std::string text = formatted("group_norm {} n={} c={} l={} g={}", element_name(p.type), p.images,
                               p.channels, p.positions, p.groups);
  if (p.nhwc) text += " nhwc";
  if (p.weight) text += " weight";
  if (p.bias) text += " bias";
  if (p.parameters != p.type) text += " params=" + element_name(p.parameters);
  if (p.activation == GroupNormActivation::kSilu) text += " silu";
  if (p.activation == GroupNormActivation::kMish) text += " mish";
  if (p.eps != kGroupNormEps) text += " eps=" + shortest(p.eps);
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
