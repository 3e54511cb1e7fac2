// generator/window_attention_backward/kernel_spec.h -- What the operator of window attention's
// gradients, its family and its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/tensor_spec.h"
#include "generator/window_attention/kernel_spec.h"
#include "generator/window_attention_backward/problem.h"
#include "templates/window_attention_backward/geometry_sm80.cuh"
// After window_attention's parameters, which are a part of these.
#include "templates/window_attention_backward/params.cuh"

namespace vitune {

// In the order of the C interface.
enum WindowAttentionBackwardTensor {
  kWindowBackwardQ,
  kWindowBackwardK,
  kWindowBackwardV,
  kWindowBackwardBias,
  kWindowBackwardPadding,
  kWindowBackwardIndex,
  kWindowBackwardDout,
  kWindowBackwardDq,
  kWindowBackwardDk,
  kWindowBackwardDv,
  kWindowBackwardDbias,
  kWindowBackwardDtable,
  kWindowBackwardDpadding,
  kWindowAttentionBackwardTensors
};
std::vector<TensorSpec> window_attention_backward_tensors(
    const WindowAttentionBackwardProblem& problem);

// A config's geometry.
WindowBackwardGeometry window_backward_geometry(const WindowAttentionBackwardProblem& problem,
                                                const Config& config);

// The launch parameters with so many CTAs of an entry, all pointers null, and where the call's
// tensors go in there.
WindowAttentionBackwardParams window_attention_backward_params(
    const WindowAttentionBackwardProblem& problem, std::int64_t parts);
std::vector<PointerSlot> window_attention_backward_pointers();

// The families: mma.sync, whatever a problem asks (sm80.cpp); and the same for windows of few
// pixels inside the image, each of whose warps has several groups of 16 rows (short.cpp).
const Family& window_attention_backward_sm80();
const Family& window_attention_backward_short();

// What both have in common: the bias's type as templates/attention/config.cuh numbers it; facts of
// the problem in a generated Config; the kernels behind the main one, whose templates begin with
// the name `functions`; and all launches, with what they leave each other in scratch memory.
int window_attention_backward_bias(const WindowAttentionProblem& problem);
std::string window_attention_backward_facts_text(const WindowAttentionProblem& problem);
std::string window_attention_backward_sums_text(const WindowAttentionBackwardProblem& problem,
                                                const std::string& functions);
std::vector<KernelNeeds> window_attention_backward_kernels(
    const WindowAttentionBackwardProblem& problem, KernelNeeds main);
LaunchPlan window_attention_backward_plan(const WindowAttentionBackwardProblem& problem,
                                          const std::vector<KernelNeeds>& needs,
                                          const DeviceInfo& device, std::span<const int> resident);

std::vector<std::string> window_attention_backward_judge_entries();
LaunchPlan window_attention_backward_answer(const WindowAttentionBackwardProblem& problem,
                                            Precision precision);
std::vector<JudgeCase> window_attention_backward_cases(
    const WindowAttentionBackwardProblem& problem);
std::vector<Fill> window_attention_backward_inputs(const WindowAttentionBackwardProblem& problem,
                                                   const std::string& draw);

}  // namespace vitune
