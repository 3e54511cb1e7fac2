// generator/attention/same_work.cpp -- Forms of problems, and the proof that a kernel does the same
// for two.
#include "generator/attention/same_work.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
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
std::string facts_text(const AttentionProblem& problem) {
  Config plain;
  for (const Parameter& parameter : attention_parameters(problem)) {
    plain.set(parameter.name, parameter.values.front());
  }
  return attention_source(problem, plain);
}

}  // namespace

AttentionProblem work_form(const AttentionProblem& problem) {
  AttentionProblem form = problem.canonical();
  form.scale = default_scale(form.d);
  form = folded(form).canonical();
  if (form.alignment == 2) return form;
  const std::string facts = facts_text(form);
  for (const std::int64_t alignment : {2, 4, 8}) {
    if (alignment >= form.alignment) break;
    AttentionProblem looser = form;
    looser.alignment = alignment;
    if (facts_text(looser) == facts) return looser;
  }
  return form;
}

std::size_t work_hash(const AttentionProblem& problem) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, over numbers
  for (const std::int64_t part :
       {problem.batch * problem.heads, problem.nq, problem.nk, problem.d,
        std::int64_t{problem.dtype == ElementType::kBf16}, std::int64_t{problem.causal},
        std::int64_t{problem.lse}, std::int64_t{problem.bias.has_value()},
        std::int64_t{problem.mask.has_value()}}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 1099511628211U;
  }
  return hash;
}

bool is_same_work(const AttentionProblem& a, const AttentionProblem& b, const Config& config,
                  const DeviceInfo& device) {
  if (work_hash(a) != work_hash(b) || !(work_form(a) == work_form(b))) return false;
  if (attention_source(a, config) != attention_source(b, config)) return false;
  const LaunchShape one = attention_launch_shape(a, config, device, 1);
  const LaunchShape other = attention_launch_shape(b, config, device, 1);
  return std::equal(std::begin(one.grid), std::end(one.grid), std::begin(other.grid)) &&
         std::equal(std::begin(one.block), std::end(one.block), std::begin(other.block)) &&
         one.shared_bytes == other.shared_bytes;
}

}  // namespace vitune
