// generator/attention/problem_distance.cpp -- Classes, distances and an order of attention
// problems.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/problem_distance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "generator/attention/facts.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

auto kernel_order(const AttentionProblem& p) {
  return std::tuple(p.dtype, p.d, p.causal, p.bias.has_value(), p.mask.has_value(), p.lse,
                    p.dropout, p.alignment, p.nk, p.nq, p.batch, p.heads);
}

}  // namespace

std::string attention_class(const AttentionProblem& problem) {
  const AttentionFacts facts = attention_facts(problem);
  std::string text;
  for (const int part :
       {facts.element, facts.head_dim, int{facts.causal}, facts.bias, facts.bias_vector,
        int{facts.mask}, facts.mask_vector, int{facts.lse}, facts.copy_bytes, int{facts.dropout}}) {
    text += static_cast<char>(part % 256);  // each is at most 256
    text += static_cast<char>(part / 256);
  }
  return text;
}

double problem_distance(const AttentionProblem& a, const AttentionProblem& b) {
  // The number of heads matters through the waves over the SMs only, rows and keys also through the
  // tiles they leave half empty.
  constexpr double kHeads = 0.3;
  return log_ratio(a.nk, b.nk) + log_ratio(a.nq, b.nq) +
         kHeads * log_ratio(a.batch * a.heads, b.batch * b.heads);
}

bool is_load_alike(const AttentionProblem& a, const AttentionProblem& b, const DeviceInfo& device) {
  constexpr std::int64_t kBusy = 4, kAlike = 2;
  const auto blocks = [&](const AttentionProblem& p) {
    return std::min(row_blocks(p), kBusy * sms_of(device));
  };
  return blocks(a) <= kAlike * blocks(b) && blocks(b) <= kAlike * blocks(a);
}

bool is_tuned_before(const AttentionProblem& a, const AttentionProblem& b) {
  return kernel_order(a) < kernel_order(b);
}

}  // namespace vitune
