// generator/linear_weight_grad/sm90_space.cpp -- Tunables of the family sm90, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "generator/gemm/rules.h"
#include "generator/linear_weight_grad/sm90.h"
#include "generator/linear_weight_grad/sm90_clocks.h"

namespace vitune {
namespace {

using Shape = WeightGradSm90Shape;

constexpr std::int64_t kLeastSplitSteps = 4;
constexpr std::int64_t kMostRounds = 4;
constexpr std::int64_t kMostScratch = std::int64_t{128} << 20;

const Tunables<Shape>& tunables_of_sm90() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::block_m, {"kBlockM", {64, 128, 192, 256}, "rows of a tile of dw", false, true}},
      {&Shape::block_n, {"kBlockN", {64, 128, 192, 256}, "columns of a tile", false, true}},
      {&Shape::stages,
       {"kStages", {2, 3, 4, 5, 6, 7, 8}, "steps in shared memory or on their way", false, true}},
      {&Shape::splits,
       {"kSplits",
        {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 14, 16, 18,  20,
         22, 24, 26, 28, 32, 33, 40, 44, 48, 52, 56, 64, 66, 88, 104, 132},
        "parts of the rows of dy and x, each with CTAs of its own; a second kernel adds them",
        false,
        true}},
      {&Shape::groups, {"kGroups", {1, 2, 3}, "warpgroups that compute", false, true}},
      {&Shape::pair, {"kPair", {0, 1, 2}, "two CTAs share dy (1) or x (2)", true, true}},
  };
  return all;
}

// How full the rounds of the device are.
double fullness(const Shape& shape, std::int64_t sms) {
  const double ctas = static_cast<double>(shape.units() * shape.cluster());
  const double rounds = std::ceil(ctas / static_cast<double>(sms));
  return ctas / (rounds * static_cast<double>(sms));
}

// Parts are for SMs that have nothing to do: their sums cost memory and a second kernel.
bool suits_splits(const LinearWeightGradProblem& p, const Shape& shape, std::int64_t sms) {
  constexpr double kFull = 0.8;
  if (shape.splits == 1) return true;
  if (shape.sums().bytes(p) > kMostScratch || shape.steps() < kLeastSplitSteps * shape.splits ||
      shape.units() * shape.cluster() > kMostRounds * sms) {
    return false;
  }
  // Too few steps for as many parts as there are SMs.
  const bool is_most = shape.steps() < 2 * kLeastSplitSteps * shape.splits;
  return is_most || fullness(shape, sms) >= kFull;
}

// Forms worth weighing, each with as many stages as fit.
struct Form {
  std::int64_t m, n, groups;
};
constexpr Form kForms[] = {{192, 192, 3}, {192, 128, 3}, {192, 64, 3}, {128, 256, 2},
                           {256, 128, 2}, {128, 192, 2}, {256, 64, 2}, {128, 128, 2},
                           {128, 64, 2},  {64, 256, 1},  {64, 192, 1}, {64, 128, 1},
                           {64, 64, 1}};

}  // namespace

WeightGradSm90Shape::WeightGradSm90Shape(const LinearWeightGradProblem& p)
    : GemmSm90{}, splits(1), m(p.m), n(p.n), k(p.k) {
  a_across = b_across = 1;
  ones = p.bias;
}

WeightGradSm90Shape::WeightGradSm90Shape(const LinearWeightGradProblem& p, const Config& config)
    : WeightGradSm90Shape(read_tunables(tunables_of_sm90(), config, WeightGradSm90Shape(p))) {}

std::vector<Parameter> WeightGradSm90::tunables() const {
  return parameters_of(tunables_of_sm90());
}

std::vector<Constraint> WeightGradSm90::rules(const Problem& problem,
                                              const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device, kUsualSms);
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Tunables<Shape>& all = tunables_of_sm90();
  const Shape facts(p);
  std::vector<Constraint> rules = tile_rules(all, facts, p.n, p.k);
  append(rules, geometry_rules(gemm_sm90_rules().all, all, facts));
  append(rules, ring_rules(all, facts, p.n, p.k, device.shared_per_block));
  rules.push_back(shape_rule<Shape>(
      "splits: at least 4 steps each, in at most 4 rounds of the SMs that are four fifths full, at "
      "most 2^27 bytes",
      all, facts, {&Shape::block_m, &Shape::block_n, &Shape::groups, &Shape::pair, &Shape::splits},
      [p, sms](const Shape& shape) { return suits_splits(p, shape, sms); }));
  return rules;
}

// Rounds of the device, each as long as a part's steps and its sums' way out take, then the second
// kernel. An operand that two CTAs share costs what they save: each waits for the other.
std::optional<double> WeightGradSm90::rank(const Problem& problem, const Config& c,
                                           const DeviceInfo& device) const {
  using Clocks = WeightGradClocks;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape(p, c);
  const double sms = static_cast<double>(sms_of(device, kUsualSms));
  const double m = shape.block_m, n = shape.block_n;
  const double row_sums = p.bias ? m / std::ceil(static_cast<double>(p.k) / n) : 0;
  const std::int64_t steps = ceil_div(shape.steps(), std::int64_t{shape.splits});
  double cost =
      Clocks::kStart + Clocks::rounds(shape.units() * shape.cluster(), sms) *
                           (Clocks::steps(shape, steps, row_sums) + 4 * m * n / Clocks::kBytes);
  if (shape.sums().needs_finish(p)) cost += Clocks::kFinish;
  if (shape.splits > 1) {
    cost += 4 * static_cast<double>(p.n * p.k * (shape.splits + 1)) / sms / Clocks::kSumBytes;
  }
  return cost;
}

std::vector<Config> WeightGradSm90::defaults(const Problem& problem, const DeviceInfo& device,
                                             const ParameterSpace& space) const {
  constexpr std::size_t kMost = 3;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const auto cost = [&](const Config& config) { return rank(problem, config, device); };
  const std::vector<std::int64_t>& splits = tunables_of_sm90()[3].parameter.values;
  std::vector<Config> best;  // of each form
  for (const Form& form : kForms) {
    std::vector<Config> fitting;
    for (const std::int64_t parts : splits) {
      Config config =
          whole(config_of(tunables_of_sm90(), {form.m, form.n, 0, parts, form.groups, 0}));
      const int fit = Shape(p, config).most_stages(static_cast<int>(device.shared_per_block));
      config.set("kStages", std::min(fit, Shape::kMostStages));
      if (!space.explain(config)) fitting.push_back(std::move(config));
    }
    for (Config& config : cheapest(fitting, 1, cost)) best.push_back(std::move(config));
  }
  return cheapest(best, kMost, cost);
}

}  // namespace vitune
