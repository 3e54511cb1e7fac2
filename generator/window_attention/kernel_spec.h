// generator/window_attention/kernel_spec.h -- What window attention's operator, its family and its
// judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/tensor_spec.h"
#include "generator/window_attention/problem.h"
#include "templates/attention/params.cuh"
#include "templates/window_attention/geometry_sm80.cuh"
// After it: its parameters are a part of these.
#include "templates/window_attention/params.cuh"
// After them: what a judge is handed beside.
#include "templates/reference/window_attention_judge_params.cuh"

namespace vitune {

// In the order of the C interface.
enum WindowAttentionTensor {
  kWindowQ,
  kWindowK,
  kWindowV,
  kWindowBias,
  kWindowPadding,
  kWindowOut,
  kWindowAttentionTensors
};
std::vector<TensorSpec> window_attention_tensors(const WindowAttentionProblem& problem);

// A config's geometry.
WindowGeometry window_geometry(const WindowAttentionProblem& problem, const Config& config);

// The launch parameters, all pointers null, and where the call's tensors go in there.
WindowAttentionParams window_attention_params(const WindowAttentionProblem& problem);
std::vector<PointerSlot> window_attention_pointers();

// The family: mma.sync (sm80.cpp).
const Family& window_attention_sm80();

std::vector<std::string> window_attention_judge_entries();
// The judge's parameters, with all pointers null.
WindowAttentionJudgeParams window_attention_judge_params(const WindowAttentionProblem& problem);
LaunchPlan window_attention_answer(const WindowAttentionProblem& problem, Precision precision);
std::vector<JudgeCase> window_attention_cases(const WindowAttentionProblem& problem);
// The smaller problems that the same kernels serve: one window, and some of each kind.
std::vector<WindowAttentionProblem> window_attention_edges(const WindowAttentionProblem& problem);
// Draws beside kNormalDraw; the second one for a bias.
inline constexpr char kWindowExtreme[] = "extreme", kWindowMasked[] = "masked";
std::vector<Fill> window_attention_inputs(const WindowAttentionProblem& problem,
                                          const std::string& draw);

}  // namespace vitune
