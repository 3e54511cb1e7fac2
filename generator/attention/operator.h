// generator/attention/operator.h -- Attention as an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem.h"
#include "generator/operator.h"

namespace vitune {

const Operator& attention();

// The problem as attention; throws Error(kFailure) for a problem of another operator.
const AttentionProblem& attention_of(const Problem& problem);

// The places of the tensors of a call.
enum AttentionTensor : int {
  kTensorQ,
  kTensorK,
  kTensorV,
  kTensorBias,
  kTensorMask,
  kTensorOut,
  kTensorLse,
  kAttentionTensors,
  kTensorRandom = kAttentionTensors,  // with dropout: seed and offset
};

// A call's tensors by these places.
AttentionPointers attention_pointers(std::span<const std::uintptr_t> addresses);

// Seed and offset of dropout, 64 bits each, as a tensor; and numbers for it.
TensorSpec random_tensor();
Fill random_fill(int place, std::uint64_t seed);

// Functions of generator/operator.h, each in a file of its own.
std::vector<TensorSpec> attention_tensors(const AttentionProblem& problem);
std::vector<std::string> attention_judge_entries();
LaunchPlan attention_answer(const AttentionProblem& problem, Precision precision);
std::vector<JudgeCase> attention_cases(const AttentionProblem& problem, const Config& config,
                                       const DeviceInfo& device);
std::vector<Fill> attention_inputs(const AttentionProblem& problem, const std::string& draw);
Config carried_attention_config(const Config& config, const AttentionProblem& from,
                                const AttentionProblem& to, const ParameterSpace& space);
// Steps of keys that the config keeps where it is carried with another width; 0: it keeps its
// width.
std::int64_t carried_steps(const Config& config, const AttentionProblem& from,
                           const ParameterSpace& space);

}  // namespace vitune
