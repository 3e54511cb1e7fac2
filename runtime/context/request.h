// runtime/context/request.h -- A sound description of a problem, as the context looks it up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/cuda_driver.h"
#include "generator/problem.h"
#include "runtime/context/plan_key.h"

namespace vitune {

struct Request {
  PlanKey key;
  ProblemPtr problem;
};

// The arguments of one call beside its description: addresses of the tensors, in the order of
// Operator::tensors(), 0 where nothing was given; scratch memory, and the stream.
struct Call {
  std::span<const std::uintptr_t> tensors;
  std::uintptr_t workspace = 0;
  std::uint64_t workspace_bytes = 0;
  CuStreamTag* stream = nullptr;
};

}  // namespace vitune
