// generator/norm_backward/judge.cpp -- How norms' gradients are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/norm_backward/kernel_spec.h"
#include "templates/reference/norm_backward_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kShifted[] = "shifted", kConstant[] = "constant", kTiny[] = "tiny",
               kWhole[] = "whole";

// How one set of random inputs is drawn.
//   normal    standard normal rows: what an untrained network has
//   shifted   rows a hundred times as far from 0 as they are wide: a variance by the mean of
//             squares would have nothing left
//   constant  rows of variance 0: eps decides, and only dy's part is left
//   tiny      rows so small that eps counts as much as their variance
//   whole     small whole numbers: the sums of dy, and of dy x^ where the statistics are given, are
//             exact in fp32, so that only what is right in every bit is in bounds
struct DrawSpec {
  double mean = 0, deviation = 1;
  double gradient = 1;                    // deviation of dy
  double rstd = 1, rstd_deviation = 0.2;  // where it is given
  double unit = 0;                        // above 0: all are multiples of it, rstd of half of it
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const NormBackwardProblem& p, const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x6e6f726d6261;
  if (draw == kNormalDraw) return {.seed = kSeed};
  if (draw == kShifted) return {.mean = 100, .seed = kSeed + 1};
  if (draw == kConstant) {
    // rstd is 1 / sqrt(eps): of a large one not everything is beyond the type.
    const double gradient = std::min(1.0, 100 * std::sqrt(p.eps));
    return {.mean = 3, .deviation = 0, .gradient = gradient, .seed = kSeed + 2};
  }
  if (draw == kTiny) {
    return {.deviation = 0.002, .rstd = 500, .rstd_deviation = 50, .seed = kSeed + 3};
  }
  if (draw == kWhole) {
    return {.deviation = 1.5, .gradient = 1.5, .rstd_deviation = 0.5, .unit = 1, .seed = kSeed + 4};
  }
  throw Error(ErrorCode::kFailure, "norms' gradients have no inputs of the name '" + draw + "'");
}

NormBackwardJudgeParams judge_params(const NormBackwardProblem& p) {
  NormBackwardJudgeParams params = {};
  params.call = norm_backward_params(p);
  params.eps = p.eps;
  params.columns = static_cast<int>(p.d);
  params.gradient = judge_type(p.type);
  params.stream = judge_type(p.stream);
  params.parameters = judge_type(p.parameters);
  params.second_type = p.second ? judge_type(*p.second) : 0;
  params.rms = p.rms ? 1 : 0;
  return params;
}

// The same rows, fewer of them, each with a factor of its own.
NormBackwardProblem with_rows(const NormBackwardProblem& p, std::int64_t rows) {
  NormBackwardProblem edge = p;
  edge.rows = rows;
  edge.factor_rows = std::min<std::int64_t>(p.factor_rows, 1);
  return edge;
}

}  // namespace

std::vector<std::string> norm_backward_judge_entries() {
  return {"vitune_norm_backward_reference", "vitune_norm_backward_plain",
          "vitune_norm_backward_reference_columns", "vitune_norm_backward_plain_columns"};
}

LaunchPlan norm_backward_answer(const NormBackwardProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 256, kMostCtas = 16384, kSide = 8;
  LaunchPlan plan = answer_plan(
      precision, ceil_div(p.rows, kThreads / 32), kMostCtas, kThreads,
      parameter_bytes(judge_params(p)),
      answer_pointers(
          norm_backward_pointers(), offsetof(NormBackwardJudgeParams, call),
          {{kNormBackwardTensors + kNormBackwardDx, offsetof(NormBackwardJudgeParams, dx)},
           {kNormBackwardTensors + kNormBackwardSecond, offsetof(NormBackwardJudgeParams, second)},
           {kNormBackwardTensors + kNormBackwardDweight,
            offsetof(NormBackwardJudgeParams, dweight)},
           {kNormBackwardTensors + kNormBackwardDbias, offsetof(NormBackwardJudgeParams, dbias)},
           {PointerSlot::kScratch, offsetof(NormBackwardJudgeParams, statistics)}}));
  plan.scratch_bytes = (precision == Precision::kExact ? 16 : 8) * p.rows;
  if (p.column_sums() == 0) return plan;
  KernelLaunch columns = plan.kernels.front();
  columns.kernel += 2;
  columns.shape.grid[0] = static_cast<std::uint32_t>(ceil_div(p.d, kSide));
  plan.kernels.push_back(std::move(columns));
  return plan;
}

std::vector<JudgeCase> norm_backward_cases(const NormBackwardProblem& p, const Config& config) {
  std::vector<JudgeCase> cases;
  // One row; a CTA that lacks some of its rows.
  for (const std::int64_t rows : {std::int64_t{1}, config.at("kRows") + 1}) {
    if (rows >= p.rows) continue;
    add_cases(cases, with_rows(p, rows), {kShifted, kNormalDraw});
  }
  add_cases(cases, p, {kWhole, kConstant, kTiny, kShifted, kNormalDraw});
  // With one column dx is the difference of equal parts, or for an RMS norm what eps leaves of it:
  // nothing but rounding, unless the parts are exact or eps is as large as x.
  if (p.d == 1) {
    const char* const meant = p.rms ? kTiny : kWhole;
    std::erase_if(cases, [&](const JudgeCase& one) { return one.draw != meant; });
  }
  return cases;
}

std::vector<Fill> norm_backward_inputs(const NormBackwardProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  DrawnFills drawn(norm_backward_tensors(p), spec.seed, spec.unit);
  drawn.add(kNormBackwardDy, 0, spec.gradient);
  drawn.add(kNormBackwardX, spec.mean, spec.deviation);
  drawn.add(kNormBackwardMean, spec.mean, spec.deviation / 4);
  drawn.add(kNormBackwardRstd, spec.rstd, spec.rstd_deviation);
  if (p.statistics) drawn.fills.back().unit = spec.unit / 2;
  drawn.add(kNormBackwardWeight, 1, 0.5);
  drawn.add(kNormBackwardResidual, 0, 1);
  drawn.add(kNormBackwardFactor, 1, 0.5);
  return std::move(drawn.fills);
}

}  // namespace vitune
