// generator/attention/dropout.cpp -- Dropout: which families compute it, and what kernels are
// handed.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/dropout.h"

namespace vitune {

std::optional<std::string> no_dropout(const AttentionProblem& problem) {
  if (problem.dropout == 0) return std::nullopt;
  return "it has no dropout";
}

std::optional<std::string> unsuited_dropout(const AttentionProblem& problem, bool has_lse) {
  if (problem.dropout == 0) return std::nullopt;
  if (problem.bias || problem.mask) return "dropout beside a bias or a mask";
  if (!has_lse) return "dropout without lse: it is for training";
  return std::nullopt;
}

AttentionDropout dropout_params(const AttentionProblem& problem) {
  const auto dropped = static_cast<unsigned>(problem.dropout);
  return {nullptr, dropped, 256.0f / static_cast<float>(256 - dropped)};
}

}  // namespace vitune
