// generator/window_attention/judge.cpp -- How window kernels are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

// How one set of random inputs is drawn.
//   normal   standard normal q, k, v: what an untrained network has
//   extreme  logits of standard deviation 8 around -40, a bias with -inf in it: zeros behind the
//            last key, whose score would be 0, must not get the weight
//   masked   no logits but a bias, half of whose runs are large negative numbers, as models mask
struct DrawSpec {
  double q_mean = 0, q_deviation = 1, k_mean = 0;
  double bias_deviation = 1, infinite_share = 0, masked_share = 0;
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const WindowAttentionProblem& p, const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x77696e646f77;
  DrawSpec spec;
  spec.seed = kSeed;
  if (draw == kNormalDraw) return spec;
  spec.bias_deviation = 3;
  if (draw == kWindowMasked) {
    spec.seed = kSeed + 1;
    spec.q_deviation = 0;
    spec.masked_share = 0.5;
    return spec;
  }
  if (draw != kWindowExtreme) {
    throw Error(ErrorCode::kFailure, "window attention has no inputs of the name '" + draw + "'");
  }
  // Logits are scale * the sum of d products: their mean is scale * d * q_mean * k_mean = -40.
  // 16-bit inputs must not overflow where the scale is tiny: logits are smaller then.
  const double root = std::sqrt(static_cast<double>(p.d));
  const double unit = std::min(1.0 / (p.scale * root), 1000.0);
  spec.seed = kSeed + 2;
  spec.k_mean = 8.0 / root;
  spec.q_mean = -5.0 * unit;
  spec.q_deviation = std::sqrt(64.0 - 25.0) * unit;
  spec.infinite_share = 0.05;
  return spec;
}

// The same kernel's problem of `down` by `across` windows, the last ones as short as `p`'s.
WindowAttentionProblem edge(const WindowAttentionProblem& p, std::int64_t images,
                            std::int64_t heads, std::int64_t down, std::int64_t across) {
  WindowAttentionProblem small = p;
  small.images = images;
  small.heads = heads;
  const auto extent = [](std::int64_t of, std::int64_t window, std::int64_t windows) {
    return of - (ceil_div(of, window) - windows) * window;
  };
  small.rows = extent(p.rows, p.window_rows, down);
  small.columns = extent(p.columns, p.window_columns, across);
  small.shift_rows = std::min(p.shift_rows, small.rows - 1);
  small.shift_columns = std::min(p.shift_columns, small.columns - 1);
  if (p.bias && p.bias->windows > 1) small.bias->windows = small.windows();
  if (p.bias && p.bias->heads > 1) small.bias->heads = heads;
  return small;
}

bool is_same_kernel(const WindowAttentionProblem& p, const WindowAttentionProblem& small) {
  const WindowAttentionProblem canonical = small.canonical();
  return canonical.is_shifted() == p.is_shifted() && canonical.is_padded() == p.is_padded() &&
         canonical.pads_first == p.pads_first && canonical.grid == p.grid;
}

}  // namespace

WindowAttentionJudgeParams window_attention_judge_params(const WindowAttentionProblem& p) {
  WindowAttentionJudgeParams params = {};
  params.call = window_attention_params(p);
  params.scale = p.scale;
  params.head_size = static_cast<int>(p.d);
  params.window_rows = static_cast<int>(p.window_rows);
  params.window_columns = static_cast<int>(p.window_columns);
  params.grid = p.grid ? 1 : 0;
  params.pads_first = p.pads_first ? 1 : 0;
  params.element = judge_type(p.type);
  params.bias = judge_type(p.bias ? p.bias->type : ElementType::kFp32);
  return params;
}

std::vector<std::string> window_attention_judge_entries() {
  return {"vitune_window_attention_reference", "vitune_window_attention_plain"};
}

LaunchPlan window_attention_answer(const WindowAttentionProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 128, kMostCtas = 65536;
  return answer_plan(
      precision, ceil_div(p.pairs() * p.keys(), kThreads), kMostCtas, kThreads,
      parameter_bytes(window_attention_judge_params(p)),
      answer_pointers(
          window_attention_pointers(), offsetof(WindowAttentionJudgeParams, call),
          {{kWindowAttentionTensors + kWindowOut, offsetof(WindowAttentionJudgeParams, out)}}));
}

std::vector<WindowAttentionProblem> window_attention_edges(const WindowAttentionProblem& p) {
  // One window of one head, and some of several of two images.
  const std::int64_t down = std::min<std::int64_t>(p.windows_down(), 2);
  const std::int64_t across = std::min<std::int64_t>(p.windows_across(), 3);
  std::vector<WindowAttentionProblem> edges = {
      edge(p, 1, 1, 1, 1), edge(p, std::min<std::int64_t>(p.images, 2),
                                std::min<std::int64_t>(p.heads, 3), down, across)};
  std::erase_if(edges, [&](const WindowAttentionProblem& small) {
    return small.pairs() >= p.pairs() || !is_same_kernel(p, small);
  });
  return edges;
}

std::vector<JudgeCase> window_attention_cases(const WindowAttentionProblem& p) {
  std::vector<JudgeCase> cases;
  ProblemPtr masked = p;
  for (const WindowAttentionProblem& small : window_attention_edges(p)) {
    masked = small;
    add_cases(cases, masked, {kWindowExtreme, kNormalDraw});
  }
  if (p.bias) cases.push_back({masked, kWindowMasked});
  add_cases(cases, p, {kWindowExtreme, kNormalDraw});
  return cases;
}

std::vector<Fill> window_attention_inputs(const WindowAttentionProblem& p,
                                          const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  DrawnFills drawn(window_attention_tensors(p), spec.seed);
  drawn.add(kWindowQ, spec.q_mean, spec.q_deviation);
  drawn.add(kWindowK, spec.k_mean, 1);
  drawn.add(kWindowV, 0, 1);
  drawn.add(kWindowBias, 0, spec.bias_deviation);
  if (p.bias) {
    drawn.fills.back().infinite_share = spec.infinite_share;
    drawn.fills.back().masked_share = spec.masked_share;
  }
  drawn.add(kWindowPadding, 0, 1);
  return std::move(drawn.fills);
}

}  // namespace vitune
