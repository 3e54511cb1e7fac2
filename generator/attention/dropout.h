// generator/attention/dropout.h -- Dropout: which families compute it, and what kernels are handed.
//
// A family without it says so in its refusal(), by no_dropout().
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "generator/attention/problem.h"
#include "templates/attention/params.cuh"
// After what it is made of.
#include "templates/attention/dropout_params.cuh"

namespace vitune {

// Why a family that knows no dropout cannot compute the problem, or nothing.
std::optional<std::string> no_dropout(const AttentionProblem& problem);
// The same of one that does; the gradients' problem is without a log-sum-exp, for it is given.
std::optional<std::string> unsuited_dropout(const AttentionProblem& problem, bool has_lse);

// The problem's, without an address.
AttentionDropout dropout_params(const AttentionProblem& problem);

}  // namespace vitune
