// generator/linear_weight_grad/sm80_space.cpp -- Tunables of the family sm80, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear_weight_grad/sm80.h"

namespace vitune {
namespace {

using Rule = std::optional<std::string>;
using Shape = WeightGradSm80Shape;

constexpr std::int64_t kLeastWarps = 4, kMostWarps = 16;
constexpr std::int64_t kMostSums = 128, kSmRegisterFile = 65536;
constexpr std::int64_t kOtherRegisters = 40;  // addresses, places in the ring, sums of rows
constexpr std::int64_t kSplitCtas = 4;        // of an SM: more are of no use
constexpr std::int64_t kLeastSplitSteps = 4;
constexpr std::int64_t kMostScratch = std::int64_t{128} << 20;

// Many for a device that is known by its architecture alone.
std::int64_t sms_of(const DeviceInfo& device) {
  constexpr std::int64_t kUnknown = 1024;
  return device.sm_count > 0 ? device.sm_count : kUnknown;
}

Rule check_warps(const LinearWeightGradProblem& p, const Config& c) {
  const Shape shape(p, c);
  if (shape.block_m % shape.warp_m != 0 || shape.block_n % shape.warp_n != 0) {
    return formatted("{}x{} of {}x{}", shape.warp_m, shape.warp_n, shape.block_m, shape.block_n);
  }
  if (shape.warps() >= kLeastWarps && shape.warps() <= kMostWarps) return std::nullopt;
  return formatted("{} warps", shape.warps());
}

// Sums, and the operands of two steps of sixteen rows.
Rule check_registers(const LinearWeightGradProblem& p, const Config& c) {
  const Shape shape(p, c);
  const std::int64_t m = shape.warp_m, n = shape.warp_n, sums = m * n / 32;
  const std::int64_t registers = sums + 2 * (m / 4 + n / 4) + kOtherRegisters;
  if (sums <= kMostSums && registers <= 255 && shape.threads() * registers <= kSmRegisterFile) {
    return std::nullopt;
  }
  return formatted("{} registers of {} threads", registers, shape.threads());
}

Rule check_stages(const LinearWeightGradProblem& p, const Config& c) {
  const Shape shape(p, c);
  const std::int64_t steps = ceil_div(shape.steps(), shape.splits);
  if (shape.stages <= std::max<std::int64_t>(steps, 2)) return std::nullopt;
  return formatted("{} stages for {} steps", shape.stages, steps);
}

Rule check_splits(const LinearWeightGradProblem& p, const Config& c, std::int64_t sms) {
  const Shape shape(p, c);
  if (shape.splits == 1) return std::nullopt;
  if (shape.sums().bytes(p) > kMostScratch) {
    return formatted("{} bytes of sums", shape.sums().bytes(p));
  }
  if (shape.steps() < kLeastSplitSteps * shape.splits) {
    return formatted("{} parts of {} steps", shape.splits, shape.steps());
  }
  if (shape.ctas() <= kSplitCtas * sms) return std::nullopt;
  return formatted("{} CTAs", shape.ctas());
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

std::vector<Parameter> WeightGradSm80::tunables() const {
  return {
      {"kBlockM", {32, 64, 128, 256}, "rows of dw that a CTA computes", false, true},
      {"kBlockN", {32, 64, 96, 128, 192, 256}, "columns that a CTA computes", false, true},
      {"kBlockK", {32, 64}, "rows of dy and x per step", false, true},
      {"kWarpM", {16, 32, 64}, "rows of a warp's part of these", false, true},
      {"kWarpN", {16, 32, 64, 128}, "columns of a warp's part of these", false, true},
      {"kStages", {2, 3, 4, 5, 6}, "steps in shared memory or on their way", false, true},
      {"kSplits",
       {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128},
       "parts of the rows of dy and x, each with CTAs of its own; a second kernel adds them",
       false,
       true},
  };
}

std::vector<Constraint> WeightGradSm80::rules(const Problem& problem,
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
      {"warps: whole parts of the block, 4 to 16",
       [p](const Config& c) { return check_warps(p, c); },
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN"}},
      {"registers: at most 128 sums of a thread, and 65536 registers of a CTA",
       [p](const Config& c) { return check_registers(p, c); },
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN"}},
      {"shared memory: stages of dy and x <= bytes per block",
       [p, shared](const Config& c) -> Rule {
         const std::int64_t bytes = Shape(p, c).shared_bytes();
         if (bytes <= shared) return std::nullopt;
         return formatted("{} bytes, {} there are", bytes, shared);
       },
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages"}},
      {"splits: at least 4 steps each, at most 4 CTAs per SM and 2^27 bytes",
       [p, sms](const Config& c) { return check_splits(p, c, sms); },
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kSplits"}},
      {"stages: no more than there are steps", [p](const Config& c) { return check_stages(p, c); }},
  };
}

// Clocks, roughly: rounds of the device, each as long as a CTA's products or its operands take, and
// the second kernel.
std::optional<double> WeightGradSm80::rank(const Problem& problem, const Config& c,
                                           const DeviceInfo& device) const {
  constexpr double kStart = 2500, kBytes = 24, kProducts = 1024;  // per clock of an SM
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape(p, c);
  const double sms = static_cast<double>(sms_of(device));
  const double m = static_cast<double>(shape.block_m), n = static_cast<double>(shape.block_n);
  const double steps =
      std::ceil(static_cast<double>(shape.steps()) / static_cast<double>(shape.splits));
  const double depth = steps * static_cast<double>(shape.block_k);
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
        Config config = whole({{"kBlockM", form.block_m},
                               {"kBlockN", form.block_n},
                               {"kBlockK", form.block_k},
                               {"kWarpM", form.warp_m},
                               {"kWarpN", form.warp_n},
                               {"kStages", stages},
                               {"kSplits", parts}});
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
