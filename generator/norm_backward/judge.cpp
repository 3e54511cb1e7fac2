// generator/norm_backward/judge.cpp -- How norms' gradients are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "core/checked.h"
#include "core/error.h"
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

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(NormBackwardJudgeParams, call) + member;
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
  constexpr PointerSlot kAnswers[] = {
      {kNormBackwardTensors + kNormBackwardDx, offsetof(NormBackwardJudgeParams, dx)},
      {kNormBackwardTensors + kNormBackwardSecond, offsetof(NormBackwardJudgeParams, second)},
      {kNormBackwardTensors + kNormBackwardDweight, offsetof(NormBackwardJudgeParams, dweight)},
      {kNormBackwardTensors + kNormBackwardDbias, offsetof(NormBackwardJudgeParams, dbias)},
      {PointerSlot::kScratch, offsetof(NormBackwardJudgeParams, statistics)},
  };
  const std::size_t plain = precision == Precision::kExact ? 0 : 1;
  KernelLaunch launch;
  launch.kernel = plain;
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(std::min(ceil_div(p.rows, kThreads / 32), kMostCtas));
  launch.shape.block[0] = kThreads;
  launch.params = parameter_bytes(judge_params(p));
  for (PointerSlot slot : norm_backward_pointers()) {
    slot.at = static_cast<std::uint32_t>(at_call(slot.at));
    launch.pointers.push_back(slot);
  }
  launch.pointers.insert(launch.pointers.end(), std::begin(kAnswers), std::end(kAnswers));
  LaunchPlan plan;
  plan.kernels.push_back(launch);
  plan.scratch_bytes = (plain == 0 ? 16 : 8) * p.rows;
  if (p.column_sums() == 0) return plan;
  launch.kernel = 2 + plain;
  launch.shape.grid[0] = static_cast<std::uint32_t>(ceil_div(p.d, kSide));
  plan.kernels.push_back(std::move(launch));
  return plan;
}

std::vector<JudgeCase> norm_backward_cases(const NormBackwardProblem& p, const Config& config) {
  std::vector<JudgeCase> cases;
  // One row; a CTA that lacks some of its rows.
  for (const std::int64_t rows : {std::int64_t{1}, config.at("kRows") + 1}) {
    if (rows >= p.rows) continue;
    for (const char* const draw : {kShifted, kNormalDraw}) {
      cases.push_back({with_rows(p, rows), draw});
    }
  }
  const ProblemPtr full = p;
  for (const char* const draw : {kWhole, kConstant, kTiny, kShifted, kNormalDraw}) {
    cases.push_back({full, draw});
  }
  // Of one column dx is the difference of equal parts, or for an RMS norm what eps leaves of it:
  // nothing but rounding, unless the parts are exact or eps is as large as x.
  if (p.d == 1) {
    const char* const meant = p.rms ? kTiny : kWhole;
    std::erase_if(cases, [&](const JudgeCase& one) { return one.draw != meant; });
  }
  return cases;
}

std::vector<Fill> norm_backward_inputs(const NormBackwardProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  const std::vector<TensorSpec> tensors = norm_backward_tensors(p);
  std::vector<Fill> fills;
  const auto fill = [&](NormBackwardTensor tensor, double mean, double deviation, double unit) {
    const TensorSpec& target = tensors[tensor];
    if (!target.given) return;
    Fill whole;
    whole.tensor = tensor;
    whole.extents = target.extents;
    whole.seed = spec.seed * 16 + static_cast<std::uint64_t>(tensor);
    whole.mean = mean;
    whole.deviation = deviation;
    whole.unit = unit;
    fills.push_back(whole);
  };
  fill(kNormBackwardDy, 0, spec.gradient, spec.unit);
  fill(kNormBackwardX, spec.mean, spec.deviation, spec.unit);
  fill(kNormBackwardMean, spec.mean, spec.deviation / 4, spec.unit);
  fill(kNormBackwardRstd, spec.rstd, spec.rstd_deviation, spec.unit / 2);
  fill(kNormBackwardWeight, 1, 0.5, spec.unit);
  fill(kNormBackwardResidual, 0, 1, spec.unit);
  fill(kNormBackwardFactor, 1, 0.5, spec.unit);
  return fills;
}

}  // namespace vitune
