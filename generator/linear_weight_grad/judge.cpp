// generator/linear_weight_grad/judge.cpp -- How weight gradients are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/error.h"
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

// The variance of a normal number of this deviation once it is rounded to a whole one.
double whole_variance(double deviation) {
  const auto beyond = [&](double x) { return std::erfc(x / deviation / std::sqrt(2.0)); };
  double variance = 0;
  for (int i = 1; i <= 32; ++i) variance += i * i * (beyond(i - 0.5) - beyond(i + 0.5));
  return variance;
}

// The deviation of normal numbers whose variance is at most `wanted` once they are whole.
double whole_deviation(double wanted) {
  double deviation = 2.5;
  while (whole_variance(deviation) > wanted) deviation *= 0.95;
  return deviation;
}

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

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(WeightGradJudgeParams, call) + member;
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
  const std::size_t plain = precision == Precision::kExact ? 0 : 1;
  WeightGradJudgeParams params = {};
  params.call = weight_grad_params(p);
  params.type = judge_type(p.type);
  params.output = judge_type(p.out);
  params.parameters = judge_type(p.parameters);
  KernelLaunch launch;
  launch.kernel = plain;
  const std::int64_t tiles = ceil_div(p.n, kSide) * ceil_div(p.k + 1, kSide);
  launch.shape.grid[0] = static_cast<std::uint32_t>(std::min(tiles, kMostCtas));
  launch.shape.block[0] = kSide * kSide;
  launch.params = parameter_bytes(params);
  for (PointerSlot slot : weight_grad_pointers()) {
    slot.at += static_cast<std::uint32_t>(offsetof(WeightGradJudgeParams, call));
    launch.pointers.push_back(slot);
  }
  launch.pointers.push_back(
      {kWeightGradTensors + kWeightGradDw, offsetof(WeightGradJudgeParams, dw)});
  launch.pointers.push_back(
      {kWeightGradTensors + kWeightGradDb, offsetof(WeightGradJudgeParams, db)});
  launch.pointers.push_back(
      {kWeightGradTensors + kWeightGradDscale, offsetof(WeightGradJudgeParams, dscale)});
  launch.pointers.push_back({PointerSlot::kScratch, offsetof(WeightGradJudgeParams, products)});
  LaunchPlan plan;
  plan.kernels.push_back(launch);
  launch.kernel = 2 + plain;
  launch.shape.grid[0] = static_cast<std::uint32_t>(std::min(p.n, kMostCtas));
  plan.kernels.push_back(std::move(launch));
  plan.scratch_bytes = (plain == 0 ? 8 : 4) * p.n * (p.k + 1);
  return plan;
}

std::vector<JudgeCase> weight_grad_cases(const LinearWeightGradProblem& p, const GemmBlock& block) {
  std::vector<JudgeCase> cases;
  for (const LinearWeightGradProblem& edge :
       block.rows > 0 ? edges(p, block) : std::vector<LinearWeightGradProblem>()) {
    const ProblemPtr small = edge;
    for (const char* const draw : {kWhole, kNormalDraw}) cases.push_back({small, draw});
  }
  const ProblemPtr full = p;
  for (const char* const draw : {kWhole, kOneHot, kCancel, kNormalDraw}) {
    cases.push_back({full, draw});
  }
  return cases;
}

std::vector<Fill> weight_grad_inputs(const LinearWeightGradProblem& p, const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  const std::vector<TensorSpec> tensors = weight_grad_tensors(p);
  std::vector<Fill> fills;
  const auto fill = [&](WeightGradTensor tensor, double mean, double deviation) {
    const TensorSpec& target = tensors[tensor];
    if (!target.given) return;
    Fill whole;
    whole.tensor = tensor;
    whole.extents = target.extents;
    whole.seed = spec.seed * 16 + static_cast<std::uint64_t>(tensor);
    whole.mean = mean;
    whole.deviation = deviation;
    whole.unit = spec.unit;
    fills.push_back(whole);
  };
  // Rows `first` to before `end` of a tensor that has been filled, with numbers of the same seed.
  const auto fill_rows = [&](WeightGradTensor tensor, std::int64_t first, std::int64_t end,
                             double deviation) {
    fill(tensor, 0, deviation);
    Fill& part = fills.back();
    part.offset = first * tensors[tensor].strides[2];
    part.extents[2] = end - first;
  };
  fill(kWeightGradX, 0, spec.x);
  fill(kWeightGradDy, 0, draw == kOneHot ? 0 : spec.dy);
  if (draw == kOneHot) fill_rows(kWeightGradDy, p.m / 2, p.m / 2 + 1, spec.dy);
  if (draw == kCancel) {
    // The second half is the first with the other sign; a sixteenth is left as it is.
    const std::int64_t half = p.m / 2, end = half + half * 15 / 16;
    if (end > half) {
      fill_rows(kWeightGradDy, half, end, -spec.dy);
      fill_rows(kWeightGradX, half, end, spec.x);
    }
  }
  fill(kWeightGradScale, spec.scale_mean, spec.scale);
  fill(kWeightGradW, 0, spec.w);
  fill(kWeightGradB, 0, spec.b);
  fill(kWeightGradDwBefore, 0, spec.before);
  fill(kWeightGradDbBefore, 0, spec.before);
  fill(kWeightGradDscaleBefore, 0, spec.before);
  return fills;
}

}  // namespace vitune
