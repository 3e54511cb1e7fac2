// generator/attention_backward/problem_text.cpp -- Gradients of attention as lines of words
// (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/format.h"
#include "generator/attention/problem_internal.h"
#include "generator/attention_backward/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

using problem_internal::kProblemKeys;
using problem_internal::Tensor;

constexpr std::string_view kFlags[] = {"bf16", "fp16", "causal", "dbias"};
constexpr auto kKeys = [] {
  constexpr std::array<std::string_view, 5> kOwn = {"do", "dq", "dk", "dv", "dbias"};
  std::array<std::string_view, kProblemKeys.size() + kOwn.size()> keys;
  std::ranges::copy(kOwn, std::ranges::copy(kProblemKeys, keys.begin()).out);
  return keys;
}();
constexpr ProblemGrammar kGrammar = {"attention_backward", kFlags, kKeys, "bf16 or fp16",
                                     "attention_backward bf16 b=32 h=12 n=197 d=64"};

// A gradient's word, the tensor whose it is, and where its strides are.
struct Gradient {
  std::string_view key;
  Tensor tensor;
  TensorStrides AttentionBackwardProblem::*strides;
  TensorStrides AttentionProblem::*own;  // of the tensor itself
};
constexpr Gradient kGradients[] = {
    {"do", Tensor::kO, &AttentionBackwardProblem::dout, &AttentionProblem::o},
    {"dq", Tensor::kQ, &AttentionBackwardProblem::dq, &AttentionProblem::q},
    {"dk", Tensor::kK, &AttentionBackwardProblem::dk, &AttentionProblem::k},
    {"dv", Tensor::kV, &AttentionBackwardProblem::dv, &AttentionProblem::v},
};

}  // namespace

AttentionBackwardProblem AttentionBackwardProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  AttentionBackwardProblem p;
  p.forward = problem_internal::read_problem(words);
  for (const Gradient& gradient : kGradients) {
    const auto given = words.find(gradient.key);
    p.*gradient.strides =
        given ? problem_internal::read_strides(p.forward, gradient.tensor, gradient.key, *given)
              : p.forward.*gradient.own;
  }
  if (const auto type = words.find("dbias")) {
    if (!p.forward.bias) malformed("dbias needs bias=: it is the gradient of that");
    p.dbias = type->empty() ? p.forward.bias->type : words.type("dbias", ElementType::kFp32);
  }
  p.validate();
  return p.canonical();
}

std::string AttentionBackwardProblem::text() const {
  const AttentionBackwardProblem p = canonical();
  constexpr std::string_view kForward = "attention";
  std::string text = "attention_backward" + p.forward.text().substr(kForward.size());
  const AttentionProblem gradients = p.gradients();
  for (const Gradient& gradient : kGradients) {
    if (p.*gradient.strides == p.forward.*gradient.own) continue;
    text += formatted(" {}={}", gradient.key,
                      problem_internal::strides_text(gradients, gradient.tensor));
  }
  if (!p.dbias) return text;
  text += " dbias";
  if (*p.dbias != p.forward.bias->type) text += "=" + std::string(element_name(*p.dbias));
  return text;
}

}  // namespace vitune
