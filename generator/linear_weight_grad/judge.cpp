// generator/linear_weight_grad/judge.cpp -- How weight gradients are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/linear_weight_grad/kernel_spec.h"
#include "templates/reference/linear_weight_grad_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kWhole[] = "whole", kOneHot[] = "onehot", kCancel[] = "cancel";

constexpr std::uint64_t kSeed = 0x64776772616421;

// How one set of random inputs is drawn.
//   normal  standard normal x, and gradients that keep its width
//   whole   small whole numbers: all sums are exact in fp32, and but for one rounding the results
//           are, so that only what is right in every bit is in bounds
//   onehot  one row of dy is not 0: dw is the product of a column and a row
//   cancel  large sums of half of the rows, which the other half takes away again but for a little
struct DrawSpec {
  double x = 1, dy = 1, scale = 0.5, scale_mean = 1, w = 1, b = 0.5, before = 1, unit = 0;
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const LinearWeightGradProblem& p, const std::string& draw) {
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k);
  const double width = 1 / std::sqrt(m);
  const double w = 1 / std::sqrt(k);
  if (draw == kNormalDraw) return {.dy = width, .w = w, .seed = kSeed};
  if (draw == kOneHot) return {.w = w, .seed = kSeed + 1};
  if (draw == kCancel) return {.x = 4, .dy = 4 * width, .w = w, .seed = kSeed + 2};
  if (draw == kWhole) {
    // bf16 has all whole numbers up to 256: products' sums are seldom beyond five times 8 or 16,
    // those weighted by w beyond five times 32.
    const double sums = p.scale ? 8 : 16;
    const double operand = whole_deviation(sums / std::sqrt(m));
    return {.x = operand,
            .dy = operand,
            .scale = 0.2,
            .scale_mean = 1.5,
            .w = whole_deviation(16 / k),
            .b = 1,
            .before = 6,
            .unit = 1,
            .seed = kSeed + 3};
  }
  throw Error(ErrorCode::kFailure, "weight gradients have no inputs of the name '" + draw + "'");
}

// Other sizes for which the kernel of `p` is the right one: facts that it is compiled for stay.
LinearWeightGradProblem with_sizes(const LinearWeightGradProblem& p, std::int64_t m, std::int64_t n,
                                   std::int64_t k) {
  LinearWeightGradProblem edge = p;
  edge.m = m;
  edge.n = n;
  edge.k = k;
  edge.dy_row += n - p.n;
  edge.x_row += k - p.k;
  return edge;
}

// Smaller problems, with tails of every extent: a single row, of which most parts get nothing, and
// tails of a step. Columns that are as many modulo 8 as in `p` are aligned alike.
std::vector<LinearWeightGradProblem> edges(const LinearWeightGradProblem& p,
                                           const GemmBlock& block) {
  const auto beyond = [](std::int64_t tile, std::int64_t extent) {
    return std::min(tile + (extent % 8 == 0 ? 8 : extent % 8), extent);
  };
  const std::int64_t n = beyond(block.rows, p.n), k = beyond(block.columns, p.k);
  std::vector<LinearWeightGradProblem> found;
  for (const std::int64_t m : {std::int64_t{1}, block.depth - 1, 2 * block.depth + 1}) {
    if (m < p.m) found.push_back(with_sizes(p, m, n, k));
  }
  return found;
}

}  // namespace

std::vector<std::string> weight_grad_judge_entries() {
  return {"vitune_weight_grad_reference", "vitune_weight_grad_plain",
          "vitune_weight_grad_reference_gradients", "vitune_weight_grad_plain_gradients"};
}

LaunchPlan weight_grad_answer(const LinearWeightGradProblem& p, Precision precision) {
  constexpr std::int64_t kSide = 16, kMostCtas = 65536;
  WeightGradJudgeParams params = {};
  params.call = weight_grad_params(p);
  params.type = judge_type(p.type);
  params.output = judge_type(p.out);
  params.parameters = judge_type(p.parameters);
  LaunchPlan plan = answer_plan(
      precision, ceil_div(p.n, kSide) * ceil_div(p.k + 1, kSide), kMostCtas, kSide * kSide,
      parameter_bytes(params),
      answer_pointers(
          weight_grad_pointers(), offsetof(WeightGradJudgeParams, call),
          {{kWeightGradTensors + kWeightGradDw, offsetof(WeightGradJudgeParams, dw)},
           {kWeightGradTensors + kWeightGradDb, offsetof(WeightGradJudgeParams, db)},
           {kWeightGradTensors + kWeightGradDscale, offsetof(WeightGradJudgeParams, dscale)},
           {PointerSlot::kScratch, offsetof(WeightGradJudgeParams, products)}}));
  KernelLaunch& gradients = plan.kernels.emplace_back(plan.kernels.front());
  gradients.kernel += 2;
  gradients.shape.grid[0] = static_cast<std::uint32_t>(std::min(p.n, kMostCtas));
  plan.scratch_bytes = (precision == Precision::kExact ? 8 : 4) * p.n * (p.k + 1);
  return plan;
}

std::vector<JudgeCase> weight_grad_cases(const LinearWeightGradProblem& p, const GemmBlock& block) {
  std::vector<JudgeCase> cases;
  if (block.rows > 0) {
    for (const LinearWeightGradProblem& edge : edges(p, block)) {
      add_cases(cases, edge, {kWhole, kNormalDraw});
    }
  }
  add_cases(cases, p, {kWhole, kOneHot, kCancel, kNormalDraw});
  return cases;
}

std::vector<Fill> weight_grad_inputs(const LinearWeightGradProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  DrawnFills drawn(weight_grad_tensors(p), spec.seed, spec.unit);
  drawn.add(kWeightGradX, 0, spec.x);
  drawn.add(kWeightGradDy, 0, draw == kOneHot ? 0 : spec.dy);
  if (draw == kOneHot) drawn.add_rows(kWeightGradDy, p.m / 2, p.m / 2 + 1, spec.dy);
  if (draw == kCancel) {
    // The second half is the first with the other sign; a sixteenth is left as it is.
    const std::int64_t half = p.m / 2, end = half + half * 15 / 16;
    if (end > half) {
      drawn.add_rows(kWeightGradDy, half, end, -spec.dy);
      drawn.add_rows(kWeightGradX, half, end, spec.x);
    }
  }
  drawn.add(kWeightGradScale, spec.scale_mean, spec.scale);
  drawn.add(kWeightGradW, 0, spec.w);
  drawn.add(kWeightGradB, 0, spec.b);
  drawn.add(kWeightGradDwBefore, 0, spec.before);
  drawn.add(kWeightGradDbBefore, 0, spec.before);
  drawn.add(kWeightGradDscaleBefore, 0, spec.before);
  return std::move(drawn.fills);
}

}  // namespace vitune
