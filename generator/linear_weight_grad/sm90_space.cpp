// generator/linear_weight_grad/sm90_space.cpp -- Tunables of the family sm90, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "generator/linear_weight_grad/sm90.h"

namespace vitune {
namespace {

using Rule = std::optional<std::string>;
using Shape = WeightGradSm90Shape;

constexpr std::int64_t kMostStages = 8;
constexpr std::int64_t kLeastSplitSteps = 4;
constexpr std::int64_t kMostRounds = 4;
constexpr std::int64_t kMostScratch = std::int64_t{128} << 20;

// An H200's where the device does not say.
std::int64_t sms_of(const DeviceInfo& device) {
  constexpr std::int64_t kUsual = 132;
  return device.sm_count > 0 ? device.sm_count : kUsual;
}

Rule check_groups(const LinearWeightGradProblem& p, const Config& c) {
  const Shape shape(p, c);
  if (shape.block_m % (64 * shape.groups) != 0) {
    return formatted("{} rows for {} warpgroups", shape.block_m, shape.groups);
  }
  const std::int64_t most = shape.groups == 3 ? 96 : 192;
  if (shape.thread_sums() <= most) return std::nullopt;
  return formatted("{} sums of a thread", shape.thread_sums());
}

Rule check_pair(const LinearWeightGradProblem& p, const Config& c) {
  const std::int64_t pair = c.at("kPair");
  const bool has_two = pair == 0 || (pair == 1 ? p.k > c.at("kBlockN") : p.n > c.at("kBlockM"));
  if (has_two) return std::nullopt;
  return std::string("there is one tile that way");
}

Rule check_stages(const LinearWeightGradProblem& p, const Config& c, std::int64_t shared) {
  const Shape shape(p, c);
  const std::int64_t most = shape.most_stages(shared);
  if (shape.stages >= std::min(most, kMostStages) - 1 && shape.stages <= most) return std::nullopt;
  return formatted("{} stages, {} fit", shape.stages, most);
}

// How full the rounds of the device are.
double fullness(const Shape& shape, std::int64_t sms) {
  const double ctas = static_cast<double>(shape.units() * shape.cluster());
  const double rounds = std::ceil(ctas / static_cast<double>(sms));
  return ctas / (rounds * static_cast<double>(sms));
}

// Parts are for SMs that have nothing to do: their sums cost memory and a second kernel.
Rule check_splits(const LinearWeightGradProblem& p, const Config& c, std::int64_t sms) {
  constexpr double kFull = 0.8;
  const Shape shape(p, c);
  if (shape.splits == 1) return std::nullopt;
  if (shape.sums().bytes(p) > kMostScratch) {
    return formatted("{} bytes of sums", shape.sums().bytes(p));
  }
  if (shape.steps() < kLeastSplitSteps * shape.splits) {
    return formatted("{} parts of {} steps", shape.splits, shape.steps());
  }
  const std::int64_t ctas = shape.units() * shape.cluster();
  if (ctas > kMostRounds * sms) return formatted("{} CTAs", ctas);
  // Too few steps for as many parts as there are SMs.
  const bool is_most = shape.steps() < 2 * kLeastSplitSteps * shape.splits;
  if (is_most || fullness(shape, sms) >= kFull) return std::nullopt;
  return formatted("{} CTAs in rounds of {}", ctas, sms);
}

// Forms worth weighing, each with as many stages as fit.
struct Form {
  std::int64_t m, n, groups, pair;
};
constexpr Form kForms[] = {
    {192, 192, 3, 1}, {192, 192, 3, 2}, {128, 256, 2, 2}, {256, 128, 2, 1},
    {128, 192, 2, 2}, {256, 64, 2, 1},  {128, 128, 2, 1}, {128, 128, 2, 2},
    {128, 64, 2, 1},  {64, 128, 1, 2},  {64, 256, 1, 0},  {64, 64, 1, 0},
};

}  // namespace

std::vector<Parameter> WeightGradSm90::tunables() const {
  return {
      {"kBlockM", {64, 128, 192, 256}, "rows of a tile of dw", false, true},
      {"kBlockN", {64, 128, 192, 256}, "columns of a tile", false, true},
      {"kStages", {2, 3, 4, 5, 6, 7, 8}, "steps in shared memory or on their way", false, true},
      {"kSplits",
       {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 14, 16, 18,  20,
        22, 24, 26, 28, 32, 33, 40, 44, 48, 52, 56, 64, 66, 88, 104, 132},
       "parts of the rows of dy and x, each with CTAs of its own; a second kernel adds them",
       false,
       true},
      {"kGroups", {1, 2, 3}, "warpgroups that compute", false, true},
      {"kPair", {0, 1, 2}, "two CTAs share dy (1) or x (2)", true, true},
  };
}

std::vector<Constraint> WeightGradSm90::rules(const Problem& problem,
                                              const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device), shared = device.shared_per_block;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  return {
      {"kBlockM: fewer than twice the rows there are, or 64",
       [p](const Config& c) { return check_weight_grad_block(c.at("kBlockM"), p.n); },
       {"kBlockM"}},
      {"kBlockN: fewer than twice the columns there are, or 64",
       [p](const Config& c) { return check_weight_grad_block(c.at("kBlockN"), p.k); },
       {"kBlockN"}},
      {"warpgroups: multiples of 64 rows, at most 192 sums of a thread, 96 where there are three",
       [p](const Config& c) { return check_groups(p, c); },
       {"kBlockM", "kBlockN", "kGroups"}},
      {"pair: two tiles side by side",
       [p](const Config& c) { return check_pair(p, c); },
       {"kBlockM", "kBlockN", "kPair"}},
      {"stages: as many as fit, 8 at most, or one less",
       [p, shared](const Config& c) { return check_stages(p, c, shared); },
       {"kBlockM", "kBlockN", "kGroups", "kStages"}},
      {"splits: at least 4 steps each, in at most 4 rounds of the SMs that are four fifths full, "
       "at most 2^27 bytes",
       [p, sms](const Config& c) { return check_splits(p, c, sms); },
       {"kBlockM", "kBlockN", "kGroups", "kPair", "kSplits"}},
  };
}

// Clocks, roughly: rounds of the device, each as long as a part's products or its operands take and
// its sums' way out, then the second kernel.
std::optional<double> WeightGradSm90::rank(const Problem& problem, const Config& c,
                                           const DeviceInfo& device) const {
  constexpr double kL2Bytes = 35, kStart = 2500;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape(p, c);
  const double sms = static_cast<double>(sms_of(device));
  const double m = static_cast<double>(shape.block_m), n = static_cast<double>(shape.block_n);
  const double dy = shape.pair == 1 ? m / 2 : m, x = shape.pair == 2 ? n / 2 : n;
  const double steps =
      std::ceil(static_cast<double>(shape.steps()) / static_cast<double>(shape.splits));
  const double step = std::max(m * n / 32, (dy + x) * 128 / kL2Bytes);
  const double ctas = static_cast<double>(shape.units() * shape.cluster());
  double cost = kStart + std::ceil(ctas / sms) * (steps * step + 4 * m * n / kL2Bytes);
  if (shape.sums().needs_finish(p)) {
    const double sums = static_cast<double>(p.n * p.k * (shape.splits + 1));
    cost += kStart + 4 * sums / sms / kL2Bytes;
  }
  return cost;
}

std::vector<Config> WeightGradSm90::defaults(const Problem& problem, const DeviceInfo& device,
                                             const ParameterSpace& space) const {
  constexpr std::size_t kMost = 3;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const auto cost = [&](const Config& config) { return rank(problem, config, device); };
  std::vector<std::int64_t> splits;
  for (const Parameter& parameter : tunables()) {
    if (parameter.name == "kSplits") splits = parameter.values;
  }
  std::vector<Config> best;  // of each form
  for (const Form& form : kForms) {
    std::vector<Config> fitting;
    for (const std::int64_t parts : splits) {
      for (const std::int64_t pair : {form.pair, std::int64_t{0}}) {
        Config config = whole({{"kBlockM", form.m},
                               {"kBlockN", form.n},
                               {"kGroups", form.groups},
                               {"kPair", pair},
                               {"kSplits", parts}});
        const std::int64_t fit = Shape(p, config).most_stages(device.shared_per_block);
        config.set("kStages", std::min(fit, kMostStages));
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
