// generator/linear_weight_grad/sm80_space.cpp -- Tunables of the family sm80, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "generator/gemm/rules.h"
#include "generator/linear_weight_grad/sm80.h"

namespace vitune {
namespace {

using Shape = WeightGradSm80Shape;

constexpr std::int64_t kSplitCtas = 4;  // of an SM: more are of no use
constexpr std::int64_t kLeastSplitSteps = 4;
constexpr std::int64_t kMostScratch = std::int64_t{128} << 20;
constexpr std::int64_t kManySms = 1024;  // of a device that is known by its architecture alone

const Tunables<Shape>& tunables_of_sm80() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::block_m,
       {"kBlockM", {32, 64, 128, 256}, "rows of dw that a CTA computes", false, true}},
      {&Shape::block_n,
       {"kBlockN", {32, 64, 96, 128, 192, 256}, "columns that a CTA computes", false, true}},
      {&Shape::block_k, {"kBlockK", {32, 64}, "rows of dy and x per step", false, true}},
      {&Shape::warp_m, {"kWarpM", {16, 32, 64}, "rows of a warp's part of these", false, true}},
      {&Shape::warp_n,
       {"kWarpN", {16, 32, 64, 128}, "columns of a warp's part of these", false, true}},
      {&Shape::stages,
       {"kStages", {2, 3, 4, 5, 6}, "steps in shared memory or on their way", false, true}},
      {&Shape::splits,
       {"kSplits",
        {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128},
        "parts of the rows of dy and x, each with CTAs of its own; a second kernel adds them",
        false,
        true}},
  };
  return all;
}

bool suits_splits(const LinearWeightGradProblem& p, const Shape& s, std::int64_t sms) {
  return s.splits == 1 ||
         (s.sums().bytes(p) <= kMostScratch && s.steps() >= kLeastSplitSteps * s.splits &&
          s.ctas() <= kSplitCtas * sms);
}

// A form that serves some problems well, to be weighed against the others.
struct Form {
  std::int64_t block_m, block_n, block_k, warp_m, warp_n, stages;
};
constexpr std::array<Form, 6> kForms = {{
    {128, 128, 32, 64, 32, 4},
    {128, 128, 64, 64, 32, 3},
    {128, 64, 64, 32, 32, 3},
    {64, 128, 64, 32, 32, 3},
    {64, 64, 64, 32, 32, 4},
    {32, 32, 64, 16, 16, 4},
}};

}  // namespace

WeightGradSm80Shape::WeightGradSm80Shape(const LinearWeightGradProblem& p)
    : GemmSm80{}, splits(1), m(p.m), n(p.n), k(p.k), bias(p.bias) {
  a_across = b_across = row_sums = 1;
}

WeightGradSm80Shape::WeightGradSm80Shape(const LinearWeightGradProblem& p, const Config& config)
    : WeightGradSm80Shape(read_tunables(tunables_of_sm80(), config, WeightGradSm80Shape(p))) {}

std::vector<Parameter> WeightGradSm80::tunables() const {
  return parameters_of(tunables_of_sm80());
}

std::vector<Constraint> WeightGradSm80::rules(const Problem& problem,
                                              const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device, kManySms), shared = device.shared_per_block;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Tunables<Shape>& all = tunables_of_sm80();
  const Shape facts(p);
  std::vector<Constraint> rules = tile_rules(all, facts, p.n, p.k);
  append(rules, geometry_rules(gemm_sm80_rules().all, all, facts));
  append(rules, memory_rules(all, facts, shared));
  rules.push_back(
      shape_rule<Shape>("splits: at least 4 steps each, at most 4 CTAs per SM and 2^27 bytes", all,
                        facts, {&Shape::block_m, &Shape::block_n, &Shape::block_k, &Shape::splits},
                        [p, sms](const Shape& s) { return suits_splits(p, s, sms); }));
  rules.push_back(shape_rule<Shape>(
      "stages: no more than there are steps", all, facts,
      {&Shape::block_k, &Shape::stages, &Shape::splits}, [](const Shape& s) {
        return s.stages <= std::max<std::int64_t>(ceil_div(s.steps(), s.splits), 2);
      }));
  return rules;
}

// Clocks, roughly: rounds of the device, each as long as a CTA's products or its operands take, and
// the second kernel.
std::optional<double> WeightGradSm80::rank(const Problem& problem, const Config& c,
                                           const DeviceInfo& device) const {
  constexpr double kStart = 2500, kBytes = 24, kProducts = 1024;  // per clock of an SM
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape(p, c);
  const double sms = static_cast<double>(sms_of(device, kManySms));
  const double m = shape.block_m, n = shape.block_n;
  const double steps = std::ceil(static_cast<double>(shape.steps()) / shape.splits);
  const double depth = steps * shape.block_k;
  // Small parts of warps read more operands for their products.
  const double reads = static_cast<double>(shape.warp_m * shape.warp_n) /
                       static_cast<double>(shape.warp_m + shape.warp_n);
  const double products = m * n * depth / kProducts * (1 + 8 / reads);
  const double rounds = std::max(1.0, static_cast<double>(shape.ctas()) / sms);
  double cost = kStart + rounds * std::max(products, (m + n) * depth * 2 / kBytes);
  if (shape.sums().needs_finish(p)) {
    const double sums = static_cast<double>(p.n * p.k * (shape.splits + 1));
    cost += 2 * kStart + 4 * sums / sms / kBytes;
  }
  return cost;
}

std::vector<Config> WeightGradSm80::defaults(const Problem& problem, const DeviceInfo& device,
                                             const ParameterSpace& space) const {
  constexpr std::size_t kMost = 2;
  const auto cost = [&](const Config& config) { return rank(problem, config, device); };
  const std::vector<std::int64_t> splits = tunables().back().values;
  std::vector<Config> best;  // of each form
  for (const Form& form : kForms) {
    std::vector<Config> fitting;
    for (const std::int64_t parts : splits) {
      for (std::int64_t stages = form.stages; stages >= 2; --stages) {
        Config config =
            whole(config_of(tunables_of_sm80(), {form.block_m, form.block_n, form.block_k,
                                                 form.warp_m, form.warp_n, stages, parts}));
        if (space.explain(config)) continue;
        fitting.push_back(std::move(config));
        break;
      }
    }
    for (Config& config : cheapest(fitting, 1, cost)) best.push_back(std::move(config));
  }
  return cheapest(best, kMost, cost);
}

}  // namespace vitune
