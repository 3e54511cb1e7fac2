// generator/linear/judge.cpp -- How linear kernels are tried, and who knows the right answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/linear/kernel_spec.h"
#include "templates/reference/linear_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kWhole[] = "whole", kLarge[] = "large";

constexpr std::uint64_t kSeed = 0x6c696e656172;

// How one set of random inputs is drawn.
//   normal  standard normal x, and weights that keep its width: what an untrained network has
//   large   sums that take the activation to both its ends
//   whole   small whole numbers: all sums are exact in fp32 and, but for an activation, the
//           results in the problem's type, so that only what is right in every bit is in bounds
struct DrawSpec {
  double x = 1, w = 1, bias = 0.5, scale = 0.5, scale_mean = 1, residual = 1, unit = 0;
  double mean = 1, rstd = 0.2, rstd_mean = 1, weight_sums = 1;
  double pre = 1, factor = 0.5;
  std::uint64_t seed = 0;
};

// The deviation of whole x and w, so that their sums are seldom beyond five times `wanted`.
double operand_deviation(double k, double wanted) { return whole_deviation(wanted / std::sqrt(k)); }

DrawSpec draw_spec(const LinearProblem& p, const std::string& draw) {
  const double k = static_cast<double>(p.k), width = 1 / std::sqrt(k);
  if (draw == kNormalDraw) return {.w = width, .seed = kSeed};
  if (draw == kLarge) return {.w = 8 * width, .bias = 4, .pre = 4, .seed = kSeed + 1};
  if (draw == kWhole) {
    // bf16 has all whole numbers up to 256. A scale is 1 or 2, 1 / deviation and a factor too.
    const bool has_other = p.norm != LinearNorm::kNone || p.factor_rows > 0;
    const double deviation = operand_deviation(k, 16 / (p.scale ? 2 : 1) / (has_other ? 2 : 1));
    return {.x = deviation,
            .w = deviation,
            .bias = 3,
            .scale = 0.2,
            .scale_mean = 1.5,
            .residual = 6,
            .unit = 1,
            .mean = 0.6,
            .rstd_mean = 1.5,
            .weight_sums = 3,
            .pre = 2,
            .seed = kSeed + 2};
  }
  throw Error(ErrorCode::kFailure, "linear layers have no inputs of the name '" + draw + "'");
}

LinearJudgeParams judge_params(const LinearProblem& p) {
  LinearJudgeParams params = {};
  params.call = linear_params(p);
  params.type = judge_type(p.type);
  params.output = judge_type(p.out);
  params.parameters = judge_type(p.parameters);
  params.transposed = p.transposed ? 1 : 0;
  params.activation = static_cast<int>(p.activation);
  params.derivative = static_cast<int>(p.derivative);
  params.periodic_residual = p.residual_period > 0 ? 1 : 0;
  params.eps = p.eps;
  params.given_columns = static_cast<int>(p.given_moments);
  params.written_columns = static_cast<int>(p.moments);
  return params;
}

// Other sizes for which the kernel of `p` is the right one: facts that it is compiled for stay.
LinearProblem with_sizes(const LinearProblem& p, std::int64_t m, std::int64_t n, std::int64_t k) {
  LinearProblem edge = p;
  edge.m = m;
  edge.n = n;
  edge.k = k;
  edge.x_row += k - p.k;
  edge.w_row += edge.w_columns() - p.w_columns();
  edge.out_row += n - p.n;
  if (p.residual) edge.residual_row += n - p.n;
  if (p.aux) edge.aux_row += n - p.n;
  if (p.has_pre()) edge.pre_row += n - p.n;
  if (p.post) edge.post_row += n - p.n;
  return edge;
}

// Smaller problems, with tails of every extent. Columns that are as many modulo 8 as in `p` are
// aligned alike; moments are of whole blocks of them.
std::vector<LinearProblem> edges(const LinearProblem& p, const GemmBlock& block) {
  const auto beyond = [](std::int64_t tile, std::int64_t extent, std::int64_t moments) {
    if (moments > 0) return round_up(tile + 1, moments);
    return tile + (extent % 8 == 0 ? 8 : extent % 8);
  };
  const std::int64_t n = beyond(block.columns, p.n, p.moments),
                     k = beyond(block.depth, p.k, p.given_moments);
  const std::int64_t few_n = std::min(n, p.n), few_k = std::min(k, p.k);
  // Where there are periods two of them at least: one alone would be none, for another kernel.
  const std::int64_t period = p.period(), rows = block.rows + 1;
  const std::int64_t m = period > 0 ? std::max(round_up(rows, period), 2 * period) : rows;
  std::vector<LinearProblem> found;
  if (period == 0 && p.m > 1) found.push_back(with_sizes(p, 1, few_n, few_k));
  if (m < p.m || few_n < p.n || few_k < p.k) {
    found.push_back(with_sizes(p, std::min(m, p.m), few_n, few_k));
  }
  return found;
}

}  // namespace

std::vector<std::string> linear_judge_entries() {
  return {"vitune_linear_reference", "vitune_linear_plain", "vitune_linear_reference_moments",
          "vitune_linear_plain_moments"};
}

LaunchPlan linear_answer(const LinearProblem& p, Precision precision) {
  constexpr std::int64_t kSide = 16, kMostCtas = 65536;
  const int second = p.post ? kLinearPost : kLinearAux;
  // Without what kernels find in the place of a mean, which has places of its own here.
  std::vector<PointerSlot> call = linear_pointers(p);
  call.resize(kLinearWeightSums + 1);
  call[kLinearMean].tensor = kLinearMean;
  LaunchPlan plan = answer_plan(
      precision, ceil_div(p.m, kSide) * ceil_div(p.n, kSide), kMostCtas, kSide * kSide,
      parameter_bytes(judge_params(p)),
      answer_pointers(call, offsetof(LinearJudgeParams, call),
                      {{kLinearFactor, offsetof(LinearJudgeParams, factor)},
                       {kLinearTensors + kLinearOut, offsetof(LinearJudgeParams, out)},
                       {kLinearTensors + second, offsetof(LinearJudgeParams, aux)},
                       {kLinearTensors + kLinearOutMoments, offsetof(LinearJudgeParams, moments)},
                       {kLinearMoments, offsetof(LinearJudgeParams, given_moments)},
                       {kLinearOutMoments, offsetof(LinearJudgeParams, out_moments)}}));
  if (p.moments > 0) {
    plan.kernels.push_back(plan.kernels.front());
    plan.kernels.back().kernel += 2;
  }
  return plan;
}

std::vector<JudgeCase> linear_cases(const LinearProblem& p, const GemmBlock& block) {
  std::vector<JudgeCase> cases;
  if (block.rows > 0) {
    for (const LinearProblem& edge : edges(p, block)) add_cases(cases, edge, {kWhole, kNormalDraw});
  }
  add_cases(cases, p, {kWhole, kLarge, kNormalDraw});
  return cases;
}

std::vector<Fill> linear_inputs(const LinearProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  DrawnFills drawn(linear_tensors(p), spec.seed, spec.unit);
  drawn.add(kLinearX, 0, spec.x);
  drawn.add(kLinearW, 0, spec.w);
  drawn.add(kLinearBias, 0, spec.bias);
  drawn.add(kLinearScale, spec.scale_mean, spec.scale);
  drawn.add(kLinearResidual, 0, spec.residual);
  drawn.add(kLinearMean, 0, spec.mean);
  drawn.add(kLinearRstd, spec.rstd_mean, spec.rstd);
  drawn.add(kLinearWeightSums, 0, spec.weight_sums);
  drawn.add(kLinearPre, 0, spec.pre);
  drawn.add(kLinearFactor, 1, spec.factor);
  // Means that differ from block to block, and squares of about as much: above 0.
  drawn.add(kLinearMoments, 4, 0.5);
  return std::move(drawn.fills);
}

}  // namespace vitune
