// runtime/api/problem_call.h -- Problems of any operator that were read from a text, and their
// calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "generator/tensor_spec.h"
#include "runtime/context/context.h"
#include "runtime/context/request.h"
#include "runtime/load/footprint.h"
#include "vitune/vitune.h"

// Constant once it is made.
struct vitune_problem {
  explicit vitune_problem(vitune::ProblemPtr problem);

  const vitune::Request request;
  const std::vector<vitune::TensorSpec> tensors;
  const vitune::Footprint footprint;
};

namespace vitune {

// Throws Error(kUsage) for a place that does not exist.
void describe_tensor(const vitune_problem& problem, std::size_t place, vitune_tensor& tensor);

vitune_status run_problem(RuntimeContext& runtime, const vitune_problem* problem,
                          std::span<void* const> tensors, Call call) noexcept;

}  // namespace vitune
