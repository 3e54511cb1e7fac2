// generator/attention_backward/kernel_spec.h -- What the operator of attention's gradients, its
// families and its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/attention_backward/problem.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/tensor_spec.h"
#include "templates/attention/params.cuh"
#include "templates/attention_backward/params.cuh"

namespace vitune {

// In the order of the C interface.
enum AttentionBackwardTensor {
  kAttentionBackwardQ,
  kAttentionBackwardK,
  kAttentionBackwardV,
  kAttentionBackwardBias,
  kAttentionBackwardMask,
  kAttentionBackwardOut,
  kAttentionBackwardLse,
  kAttentionBackwardDout,
  kAttentionBackwardDq,
  kAttentionBackwardDk,
  kAttentionBackwardDv,
  kAttentionBackwardDbias,
  kAttentionBackwardTensors,
  kAttentionBackwardRandom = kAttentionBackwardTensors,  // with dropout: seed and offset
};
std::vector<TensorSpec> attention_backward_tensors(const AttentionBackwardProblem& problem);

// The parameters of kernels without dropout, parts = 1, and where the call's tensors go in there.
AttentionBackwardParams attention_backward_params(const AttentionBackwardProblem& problem);
std::vector<PointerSlot> attention_backward_pointers();

// Hands a launch its problem's parameters and pointers.
void set_attention_backward_params(KernelLaunch& launch, const AttentionBackwardProblem& problem);

// Members of a generated Config: the problem's facts, as templates/attention_backward/config.cuh
// lists them.
std::string attention_backward_facts_text(const AttentionBackwardProblem& problem);

// Scratch memory that the kernels of a plan share: first delta, a number for each row of scores.
std::int64_t attention_backward_delta_bytes(const AttentionBackwardProblem& problem);

std::vector<std::string> attention_backward_judge_entries();
LaunchPlan attention_backward_answer(const AttentionBackwardProblem& problem, Precision precision);
std::vector<JudgeCase> attention_backward_cases(const AttentionBackwardProblem& problem,
                                                const Config& config, const DeviceInfo& device);
std::vector<Fill> attention_backward_inputs(const AttentionBackwardProblem& problem,
                                            const std::string& draw);

}  // namespace vitune
