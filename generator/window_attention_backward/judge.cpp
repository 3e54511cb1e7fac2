// generator/window_attention_backward/judge.cpp -- How gradients of window attention are tried, and
// who knows the right answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include "core/checked.h"
#include "generator/judging.h"
#include "generator/window_attention_backward/kernel_spec.h"
#include "templates/reference/window_attention_backward_judge_params.cuh"

namespace vitune {
namespace {

using JudgeParams = WindowAttentionBackwardJudgeParams;

constexpr std::uint64_t kSeed = 0x77696e6267;

// Where rows' numbers, padding's and dbias begin in the scratch memory of an answer, and its end.
struct JudgeScratch {
  std::int64_t padding, sums, end;
};
JudgeScratch scratch_of(const WindowAttentionBackwardProblem& p, std::int64_t bytes) {
  const std::int64_t rows = p.forward.pairs() * p.forward.keys();
  JudgeScratch scratch = {};
  scratch.padding = round_up(3 * rows * bytes, kScratchUnit);
  const std::int64_t padding = p.has_dpadding() ? 2 * p.forward.d * rows * bytes : 0;
  scratch.sums = round_up(scratch.padding + padding, kScratchUnit);
  scratch.end = scratch.sums + (p.sums_bias() ? p.bias_elements() * bytes : 0);
  return scratch;
}

JudgeParams judge_params(const WindowAttentionBackwardProblem& p) {
  const WindowAttentionJudgeParams forward = window_attention_judge_params(p.forward);
  JudgeParams params = {};
  params.call = window_attention_backward_params(p, 1);
  params.scale = forward.scale;
  params.head_size = forward.head_size;
  params.window_rows = forward.window_rows;
  params.window_columns = forward.window_columns;
  params.grid = forward.grid;
  params.pads_first = forward.pads_first;
  params.element = forward.element;
  params.bias = forward.bias;
  return params;
}

std::vector<PointerSlot> judge_pointers(const JudgeScratch& scratch) {
  constexpr int kAnswers = kWindowAttentionBackwardTensors;
  return answer_pointers(window_attention_backward_pointers(), offsetof(JudgeParams, call),
                         {{kAnswers + kWindowBackwardDq, offsetof(JudgeParams, dq)},
                          {kAnswers + kWindowBackwardDk, offsetof(JudgeParams, dk)},
                          {kAnswers + kWindowBackwardDv, offsetof(JudgeParams, dv)},
                          {kAnswers + kWindowBackwardDbias, offsetof(JudgeParams, dbias)},
                          {kAnswers + kWindowBackwardDtable, offsetof(JudgeParams, dtable)},
                          {kAnswers + kWindowBackwardDpadding, offsetof(JudgeParams, dpadding)},
                          {PointerSlot::kScratch, offsetof(JudgeParams, rows)},
                          {PointerSlot::kScratch, offsetof(JudgeParams, padding), scratch.padding},
                          {PointerSlot::kScratch, offsetof(JudgeParams, sums), scratch.sums}});
}

// Extreme weights are near 0 or 1. Where most keys are padding, which are all alike, gradients are
// nothing then but what rounding leaves.
void add_draws(std::vector<JudgeCase>& cases, const WindowAttentionBackwardProblem& p) {
  const WindowAttentionProblem& f = p.forward;
  if (2 * f.pixels() >= f.windows() * f.keys()) add_cases(cases, p, {kWindowExtreme});
  add_cases(cases, p, {kNormalDraw});
}

// A row of the table for each entry; some entries are of none.
std::vector<std::int32_t> drawn_index(const WindowAttentionBackwardProblem& p, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> index(static_cast<std::size_t>(p.forward.keys() * p.forward.keys()));
  const auto rows = static_cast<std::uint64_t>(p.table_rows);
  for (std::int32_t& row : index) row = static_cast<std::int32_t>(random() % (rows + 2)) - 1;
  return index;
}

}  // namespace

std::vector<std::string> window_attention_backward_judge_entries() {
  std::vector<std::string> entries;
  for (const char* const kernel : {"rows", "keys", "bias", "sums"}) {
    for (const char* const precision : {"reference", "plain"}) {
      entries.push_back(std::string("vitune_window_attention_backward_") + precision + "_" +
                        kernel);
    }
  }
  return entries;
}

LaunchPlan window_attention_backward_answer(const WindowAttentionBackwardProblem& p,
                                            Precision precision) {
  constexpr std::int64_t kThreads = 128, kMostCtas = 65536;
  const bool is_exact = precision == Precision::kExact;
  const JudgeScratch scratch = scratch_of(p, is_exact ? 8 : 4);
  const std::int64_t rows = p.forward.pairs() * p.forward.keys();
  const std::int64_t table = p.table_rows != 0 ? p.table_rows * p.forward.bias->heads : 0;
  const std::int64_t padding = p.has_dpadding() ? 3 * p.forward.heads * p.forward.d : 0;
  const std::int64_t threads[] = {rows, rows, p.sums_bias() ? p.bias_elements() : 0,
                                  std::max(table, padding)};
  LaunchPlan plan;
  for (std::size_t i = 0; i < std::size(threads); ++i) {
    if (threads[i] == 0) continue;
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = 2 * i + (is_exact ? 0 : 1);
    launch.shape.grid[0] =
        static_cast<std::uint32_t>(std::min(ceil_div(threads[i], kThreads), kMostCtas));
    launch.shape.block[0] = kThreads;
    launch.params = parameter_bytes(judge_params(p));
    launch.pointers = judge_pointers(scratch);
  }
  plan.scratch_bytes = scratch.end;
  return plan;
}

std::vector<JudgeCase> window_attention_backward_cases(const WindowAttentionBackwardProblem& p) {
  std::vector<JudgeCase> cases;
  ProblemPtr masked = p;
  for (const WindowAttentionProblem& small : window_attention_edges(p.forward)) {
    WindowAttentionBackwardProblem edge = p;
    edge.forward = small;
    if (p.dbias_windows > 1) edge.dbias_windows = small.bias->windows;
    masked = edge;
    add_draws(cases, edge);
  }
  if (p.forward.bias) cases.push_back({masked, kWindowMasked});
  add_draws(cases, p);
  return cases;
}

std::vector<Fill> window_attention_backward_inputs(const WindowAttentionBackwardProblem& p,
                                                   const std::string& draw) {
  // q, k, v, bias and padding have forward's places and numbers; but keys of padding are like the
  // others, which would weigh nothing beside them.
  std::vector<Fill> fills = window_attention_inputs(p.forward, draw);
  const auto keys = std::ranges::find(fills, static_cast<int>(kWindowBackwardK), &Fill::tensor);
  for (Fill& fill : fills) {
    if (fill.tensor == kWindowBackwardPadding) fill.mean = keys->mean;
  }
  DrawnFills drawn(window_attention_backward_tensors(p), kSeed);
  drawn.add(kWindowBackwardDout, 0, 1);
  drawn.add(kWindowBackwardIndex, 0, 1);
  if (p.table_rows != 0) drawn.fills.back().numbers = drawn_index(p, kSeed);
  fills.insert(fills.end(), drawn.fills.begin(), drawn.fills.end());
  return fills;
}

}  // namespace vitune
