// generator/packed_attention/kernel_spec.h -- What packed attention's operator, its families and
// its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/packed_attention/problem.h"
#include "generator/tensor_spec.h"
#include "templates/attention/params.cuh"
#include "templates/packed_attention/geometry_streaming.cuh"
// After it: its parameters are a part of these.
#include "templates/packed_attention/params.cuh"

namespace vitune {

// In the order of the C interface.
enum PackedAttentionTensor {
  kPackedQ,
  kPackedK,
  kPackedV,
  kPackedOffsetsQ,
  kPackedOffsetsK,
  kPackedOut,
  kPackedLse,
  kPackedAttentionTensors
};
std::vector<TensorSpec> packed_attention_tensors(const PackedAttentionProblem& problem);

// A config's geometry.
PackedGeometry packed_geometry(const PackedAttentionProblem& problem, const Config& config);

// The launch parameters, all pointers null and no items, and where the call's tensors go in there.
PackedAttentionParams packed_attention_params(const PackedAttentionProblem& problem);
std::vector<PointerSlot> packed_attention_pointers();

// The families (families.cpp): mma.sync; wgmma; wgmma beside warps that do nothing but copy.
const Family& packed_attention_sm80();
const Family& packed_attention_sm90();
const Family& packed_attention_sm90_pipelined();

std::vector<std::string> packed_attention_judge_entries();
LaunchPlan packed_attention_answer(const PackedAttentionProblem& problem, Precision precision);
std::vector<JudgeCase> packed_attention_cases(const PackedAttentionProblem& problem);
std::vector<Fill> packed_attention_inputs(const PackedAttentionProblem& problem,
                                          const std::string& draw);

}  // namespace vitune
