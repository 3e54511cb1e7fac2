// generator/group_norm/judge.cpp -- How group norm kernels are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "core/error.h"
#include "generator/group_norm/kernel_spec.h"
#include "generator/judging.h"
#include "templates/reference/group_norm_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kShifted[] = "shifted", kConstant[] = "constant", kTiny[] = "tiny",
               kLarge[] = "large";

// How one set of random inputs is drawn.
//   normal    standard normal: what an untrained network has
//   shifted   groups a hundred times as far from 0 as they are wide: a variance by the mean of
//             squares would have nothing left
//   constant  groups of variance 0: eps decides
//   tiny      groups so small that eps counts as much as their variance
//   large     weights and biases that take the activation to both its ends
struct DrawSpec {
  double mean = 0, deviation = 1, parameters = 0.5;
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x67726f7570;
  if (draw == kNormalDraw) return {0, 1, 0.5, kSeed};
  if (draw == kShifted) return {100, 1, 0.5, kSeed + 1};
  if (draw == kConstant) return {3, 0, 0.5, kSeed + 2};
  if (draw == kTiny) return {0, 0.002, 0.5, kSeed + 3};
  if (draw == kLarge) return {0, 1, 60, kSeed + 4};
  throw Error(ErrorCode::kFailure, "group norms have no inputs of the name '" + draw + "'");
}

GroupNormJudgeParams judge_params(const GroupNormProblem& p) {
  GroupNormJudgeParams params = {};
  params.call.groups = p.images * p.groups;
  params.eps = p.eps;
  params.images = p.images;
  params.channels = static_cast<int>(p.channels);
  params.positions = static_cast<int>(p.positions);
  params.groups = static_cast<int>(p.groups);
  params.nhwc = p.nhwc ? 1 : 0;
  params.type = judge_type(p.type);
  params.parameters = judge_type(p.parameters);
  params.activation = static_cast<int>(p.activation);
  return params;
}

// One image, and a CTA that lacks some of its groups. None of a grid: how often its CTAs go through
// the tensor is compiled for the problem's own images.
std::vector<std::int64_t> fewer_images(const GroupNormProblem& p, const Config& config) {
  const GroupNormTiling t = group_norm_tiling(p, config);
  std::vector<std::int64_t> fewer;
  if (t.grid()) return fewer;
  const std::int64_t some = t.groups / p.groups + 1;
  if (1 < p.images) fewer.push_back(1);
  if (1 < some && some < p.images) fewer.push_back(some);
  return fewer;
}

GroupNormProblem with_images(const GroupNormProblem& p, std::int64_t images) {
  GroupNormProblem edge = p;
  edge.images = images;
  return edge;
}

}  // namespace

std::vector<std::string> group_norm_judge_entries() {
  return {"vitune_group_norm_reference", "vitune_group_norm_plain"};
}

LaunchPlan group_norm_answer(const GroupNormProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 256, kMostCtas = 16384;
  return answer_plan(
      precision, p.images * p.groups, kMostCtas, kThreads, parameter_bytes(judge_params(p)),
      answer_pointers(group_norm_pointers(), offsetof(GroupNormJudgeParams, call),
                      {{kGroupNormTensors + kGroupNormOut, offsetof(GroupNormJudgeParams, out)}}));
}

std::vector<JudgeCase> group_norm_cases(const GroupNormProblem& p, const Config& config) {
  std::vector<JudgeCase> cases;
  for (const std::int64_t images : fewer_images(p, config)) {
    add_cases(cases, with_images(p, images), {kShifted, kNormalDraw});
  }
  add_cases(cases, p, {kConstant, kTiny, kLarge, kShifted, kNormalDraw});
  return cases;
}

std::vector<Fill> group_norm_inputs(const GroupNormProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(draw);
  DrawnFills drawn(group_norm_tensors(p), spec.seed);
  drawn.add(kGroupNormX, spec.mean, spec.deviation);
  drawn.add(kGroupNormWeight, 1, spec.parameters);
  drawn.add(kGroupNormBias, 0, spec.parameters);
  return std::move(drawn.fills);
}

}  // namespace vitune
