// generator/norm/judge.cpp -- How norm kernels are tried, and who knows the right answer.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/norm/kernel_spec.h"
#include "templates/reference/norm_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kShifted[] = "shifted", kConstant[] = "constant", kTiny[] = "tiny";

// How one set of random inputs is drawn.
//   normal    standard normal rows: what an untrained network has
//   shifted   rows a hundred times as far from 0 as they are wide: a variance by the mean of
//             squares would have nothing left
//   constant  rows of variance 0: eps decides
//   tiny      rows so small that eps counts as much as their variance
struct DrawSpec {
  double mean = 0, deviation = 1;
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x6e6f726d;
  if (draw == kNormalDraw) return {0, 1, kSeed};
  if (draw == kShifted) return {100, 1, kSeed + 1};
  if (draw == kConstant) return {3, 0, kSeed + 2};
  if (draw == kTiny) return {0, 0.002, kSeed + 3};
  throw Error(ErrorCode::kFailure, "norms have no inputs of the name '" + draw + "'");
}

NormJudgeParams judge_params(const NormProblem& p) {
  NormJudgeParams params = {};
  params.call = norm_params(p);
  params.eps = p.eps;
  params.columns = static_cast<int>(p.d);
  params.input = judge_type(p.type);
  params.output = judge_type(p.out);
  params.parameters = judge_type(p.parameters);
  params.second_type = p.second ? judge_type(*p.second) : 0;
  params.rms = p.rms ? 1 : 0;
  return params;
}

// The same rows, fewer or more of them.
NormProblem with_rows(const NormProblem& p, std::int64_t rows) {
  NormProblem edge = p;
  edge.rows = rows;
  if (p.rows == 1) return edge;
  return edge.canonical();
}

}  // namespace

std::vector<std::string> norm_judge_entries() {
  return {"vitune_norm_reference", "vitune_norm_plain"};
}

LaunchPlan norm_answer(const NormProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 256, kMostCtas = 16384;
  return answer_plan(
      precision, ceil_div(p.rows, kThreads / 32), kMostCtas, kThreads,
      parameter_bytes(judge_params(p)),
      answer_pointers(norm_pointers(), offsetof(NormJudgeParams, call),
                      {{kNormTensors + kNormOut, offsetof(NormJudgeParams, out)},
                       {kNormTensors + kNormSum, offsetof(NormJudgeParams, sum)},
                       {kNormTensors + kNormSecond, offsetof(NormJudgeParams, second)},
                       {kNormTensors + kNormMean, offsetof(NormJudgeParams, mean)},
                       {kNormTensors + kNormRstd, offsetof(NormJudgeParams, rstd)}}));
}

std::vector<JudgeCase> norm_cases(const NormProblem& p, const Config& config) {
  std::vector<JudgeCase> cases;
  // One row; a CTA that lacks some of its rows.
  for (const std::int64_t rows : {std::int64_t{1}, config.at("kRows") + 1}) {
    if (rows >= p.rows) continue;
    add_cases(cases, with_rows(p, rows), {kShifted, kNormalDraw});
  }
  add_cases(cases, p, {kConstant, kTiny, kShifted, kNormalDraw});
  return cases;
}

std::vector<Fill> norm_inputs(const NormProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(draw);
  DrawnFills drawn(norm_tensors(p), spec.seed);
  drawn.add(kNormX, spec.mean, spec.deviation);
  drawn.add(kNormResidual, 0, spec.deviation);
  drawn.add(kNormWeight, 1, 0.5);
  drawn.add(kNormBias, 0, 0.5);
  return std::move(drawn.fills);
}

}  // namespace vitune
