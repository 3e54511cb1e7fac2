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
// After it: its parameters are a part of these.
#include "templates/window_attention/params.cuh"

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

// A kernel's sizes (templates/window_attention/config.cuh has the words). Any numbers for a config
// outside the space.
struct WindowTiling {
  std::int64_t heads_per_cta = 0, row_warps = 0, row_tiles = 0, block_n = 0, buffers = 0;
  std::int64_t tiles = 0;  // of kRowTiles times 16 rows, that a window's rows fill
  std::int64_t steps = 0;  // of keys
  std::int64_t query_rows = 0, key_rows = 0, pitch = 0;

  std::int64_t threads() const { return 32 * heads_per_cta * row_warps; }
  std::int64_t shared_bytes() const {
    return heads_per_cta * buffers * (query_rows + 2 * key_rows) * pitch;
  }
};
WindowTiling window_tiling(const WindowAttentionProblem& problem, const Config& config);

// The launch parameters, all pointers null.
WindowAttentionParams window_attention_params(const WindowAttentionProblem& problem);

// The family: mma.sync (sm80.cpp).
const Family& window_attention_sm80();

std::vector<std::string> window_attention_judge_entries();
LaunchPlan window_attention_answer(const WindowAttentionProblem& problem, Precision precision);
std::vector<JudgeCase> window_attention_cases(const WindowAttentionProblem& problem);
std::vector<Fill> window_attention_inputs(const WindowAttentionProblem& problem,
                                          const std::string& draw);

}  // namespace vitune
