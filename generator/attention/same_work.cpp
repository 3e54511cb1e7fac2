// generator/attention/same_work.cpp -- Forms that stand for all problems of the same work.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/same_work.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

// The stride of the folded dimension, or nothing if there is none.
std::optional<std::int64_t> folded_stride(const AttentionProblem& problem,
                                          const TensorStrides& strides) {
  if (problem.heads == 1) return strides.batch;
  if (problem.batch == 1) return strides.head;
  const auto span = checked_mul(problem.heads, strides.head);
  if (!span || *span != strides.batch) return std::nullopt;
  return strides.head;
}

bool is_shared(const std::optional<ScoreOperand>& operand) {
  return !operand || (operand->batches == 1 && operand->strides[1] == 0);
}

AttentionProblem folded(const AttentionProblem& problem) {
  const auto batch = checked_mul(problem.batch, problem.heads);
  const bool foldable = batch && problem.kv_heads == problem.heads && is_shared(problem.bias) &&
                        is_shared(problem.mask);
  if (!foldable) return problem;
  AttentionProblem result = problem;
  for (TensorStrides AttentionProblem::*tensor :
       {&AttentionProblem::q, &AttentionProblem::k, &AttentionProblem::v, &AttentionProblem::o}) {
    const auto stride = folded_stride(problem, problem.*tensor);
    if (!stride) return problem;
    result.*tensor = {.batch = *stride, .head = 0, .row = (problem.*tensor).row};
  }
  result.batch = *batch;
  result.heads = result.kv_heads = 1;
  return result;
}

// The source of some kernel: it holds every compile-time fact of the problem.
std::string source_of(const AttentionProblem& problem) {
  return attention_source(problem, Config());
}

}  // namespace

AttentionProblem work_form(const AttentionProblem& problem) {
  AttentionProblem form = problem.canonical();
  form.scale = default_scale(form.d);
  form = folded(form).canonical();
  if (form.alignment == 2) return form;
  const std::string facts = source_of(form);
  for (const std::int64_t alignment : {2, 4, 8}) {
    if (alignment >= form.alignment) break;
    AttentionProblem looser = form;
    looser.alignment = alignment;
    if (source_of(looser) == facts) return looser;
  }
  return form;
}

std::size_t work_hash(const AttentionProblem& problem) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, over numbers
  for (const std::int64_t part :
       {problem.batch * problem.heads, problem.nq, problem.nk, problem.d,
        std::int64_t{problem.dtype == ElementType::kBf16}, std::int64_t{problem.causal},
        std::int64_t{problem.lse}, std::int64_t{problem.bias.has_value()},
        std::int64_t{problem.mask.has_value()}, std::int64_t{problem.dropout}}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 1099511628211U;
  }
  return hash;
}

}  // namespace vitune
