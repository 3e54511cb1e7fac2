// generator/group_norm/problem_text.cpp -- Group norms as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

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

// The flag of these that is given, or nothing; `twice` is the sentence for several.
std::string_view one_of(const ProblemWords& words, std::initializer_list<std::string_view> flags,
                        std::string_view twice) {
  std::string_view given;
  for (const std::string_view flag : flags) {
    if (!words.flag(flag)) continue;
    if (!given.empty()) malformed(std::string(twice));
    given = flag;
  }
  return given;
}

ElementType read_type(const ProblemWords& words) {
  const auto name = one_of(words, {"bf16", "fp16", "fp32"}, "two types are given: x has one");
  if (name.empty()) malformed("the type is missing: begin with bf16, fp16 or fp32");
  return *element_type_of(name);
}

ElementType read_parameters(const ProblemWords& words, ElementType otherwise) {
  const auto name = words.find("params");
  if (!name) return otherwise;
  const auto type = element_type_of(*name);
  if (type && *type != ElementType::kBool) return *type;
  malformed(formatted("params={} is no type: use bf16, fp16 or fp32", in_quotes(*name)));
}

GroupNormActivation read_activation(const ProblemWords& words) {
  const auto name =
      one_of(words, {"silu", "mish"}, "silu and mish are given: the result goes through one");
  if (name.empty()) return GroupNormActivation::kNone;
  return name == "silu" ? GroupNormActivation::kSilu : GroupNormActivation::kMish;
}

}  // namespace

GroupNormProblem GroupNormProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  GroupNormProblem p;
  p.type = read_type(words);
  p.images = words.required("n", "images");
  p.channels = words.required("c", "channels");
  p.positions = words.required("l", "positions of an image, height times width");
  p.groups = words.required("g", "groups of channels");
  p.nhwc = words.flag("nhwc");
  p.weight = words.flag("weight");
  p.bias = words.flag("bias");
  p.parameters = read_parameters(words, p.type);
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
