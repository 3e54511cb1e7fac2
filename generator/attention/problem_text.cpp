// generator/attention/problem_text.cpp -- The canonical text of a problem (docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "core/format.h"
#include "generator/attention/problem_internal.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

using problem_internal::canonical_operand;
using problem_internal::contiguous_strides;
using problem_internal::has_layout;
using problem_internal::kLayouts;
using problem_internal::kTensors;
using problem_internal::Layout;
using problem_internal::layout_name;
using problem_internal::layout_of;
using problem_internal::score_dims;
using problem_internal::ScoreDims;
using problem_internal::strides_of;
using problem_internal::Tensor;
using problem_internal::tensor_name;

// The layout that most of q, k and v have, the preferred one of equals; nothing if none has any.
std::optional<Layout> common_layout(const AttentionProblem& p) {
  std::optional<Layout> best;
  int most = 0;
  for (const Layout layout : kLayouts) {
    int count = 0;
    for (const Tensor tensor : {Tensor::kQ, Tensor::kK, Tensor::kV}) {
      count += has_layout(p, tensor, layout) ? 1 : 0;
    }
    if (count > most) {
      most = count;
      best = layout;
    }
  }
  return best;
}

void append_layouts(const AttentionProblem& p, std::string& text) {
  const std::optional<Layout> common = common_layout(p);
  if (common) text += formatted(" layout={}", layout_name(*common));
  for (const Tensor tensor : kTensors) {
    const std::optional<Layout> expected = tensor == Tensor::kO ? Layout::kBnhd : common;
    if (expected && has_layout(p, tensor, *expected)) continue;
    text += formatted(" {}={}", tensor_name(tensor), problem_internal::strides_text(p, tensor));
  }
}

std::string operand_text(const AttentionProblem& p, const ScoreOperand& operand) {
  const ScoreDims dims = score_dims(p, operand);
  std::string text = formatted("{}:{}", element_name(operand.type), joined(dims, "x"));
  if (operand.strides != contiguous_strides(dims)) {
    text += formatted("@{}", joined(operand.strides, ","));
  }
  return text;
}

}  // namespace

std::string problem_internal::strides_text(const AttentionProblem& p, Tensor tensor) {
  if (const auto layout = layout_of(p, tensor)) return std::string(layout_name(*layout));
  const TensorStrides& s = strides_of(p, tensor);
  return formatted("@{},{},{}", s.batch, s.head, s.row);
}

std::string AttentionProblem::text() const {
  const AttentionProblem p = canonical();
  std::string text = formatted("attention {} b={} h={}", element_name(p.dtype), p.batch, p.heads);
  if (p.kv_heads != p.heads) text += formatted(" hkv={}", p.kv_heads);
  text += formatted(" nq={} nk={} d={}", p.nq, p.nk, p.d);
  append_layouts(p, text);
  if (p.causal) text += " causal";
  if (p.scale != default_scale(p.d)) text += " scale=" + shortest(p.scale);
  if (p.bias) text += " bias=" + operand_text(p, *p.bias);
  if (p.mask) text += " mask=" + operand_text(p, *p.mask);
  if (p.dropout != 0) text += " dropout=" + shortest(p.dropout / 256.0);
  if (p.lse) text += " lse";
  if (p.alignment != 16) text += formatted(" align={}", p.alignment);
  return text;
}

}  // namespace vitune
