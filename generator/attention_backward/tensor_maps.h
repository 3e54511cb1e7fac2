// generator/attention_backward/tensor_maps.h -- How the tensor memory accelerator sees the operands
// of attention's gradients.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/attention_backward/problem.h"
#include "generator/launch_plan.h"

namespace vitune {

// Why the accelerator cannot read a problem's tensors, or nothing.
std::optional<std::string> attention_backward_maps_refusal(const AttentionBackwardProblem& problem);

// Boxes of a kernel's maps: bytes of a swizzle atom, rows of Q, dO and out, rows of K and V.
struct BackwardBoxes {
  int swizzle, query_rows, key_rows;
  bool has_out;  // out is read
};

// The members of AttentionBackwardTensorMaps (templates/attention_backward/sm90_params.cuh).
std::vector<TensorMapSlot> attention_backward_maps(const AttentionBackwardProblem& problem,
                                                   const BackwardBoxes& boxes);

}  // namespace vitune
