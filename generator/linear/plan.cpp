// generator/linear/plan.cpp -- The launches of a linear layer: one, or two and memory between.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "generator/linear/kernel_spec.h"
#include "templates/linear/params.cuh"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kLinearX, offsetof(LinearParams, x)},
    {kLinearW, offsetof(LinearParams, w)},
    {kLinearBias, offsetof(LinearParams, bias)},
    {kLinearScale, offsetof(LinearParams, scale)},
    {kLinearResidual, offsetof(LinearParams, residual)},
    {kLinearOut, offsetof(LinearParams, out)},
    {kLinearAux, offsetof(LinearParams, aux)},
    {kLinearMean, offsetof(LinearParams, mean)},
    {kLinearRstd, offsetof(LinearParams, rstd)},
    {kLinearWeightSums, offsetof(LinearParams, weight_sums)},
};
constexpr PointerSlot kPartials = {PointerSlot::kScratch, offsetof(LinearParams, partials)};

constexpr int kSumThreads = 256;

LinearParams params_of(const LinearProblem& p, const Config& config) {
  LinearParams params = {};
  params.x_row = p.x_row;
  params.w_row = p.w_row;
  params.residual_row = p.residual_row;
  params.out_row = p.out_row;
  params.aux_row = p.aux_row;
  params.m = static_cast<int>(p.m);
  params.n = static_cast<int>(p.n);
  params.k = static_cast<int>(p.k);
  params.period = static_cast<int>(p.period());
  params.spread = static_cast<int>(p.out_period > 0 ? p.out_spread : p.period());
  params.splits = static_cast<int>(config.at("kSplits"));
  params.split_columns = static_cast<int>(linear_split_columns(p, config));
  return params;
}

}  // namespace

std::int64_t linear_threads(const Config& config) {
  return 32 * (config.at("kBlockM") / config.at("kWarpM")) *
         (config.at("kBlockN") / config.at("kWarpN"));
}

std::int64_t linear_shared_bytes(const LinearProblem& p, const Config& config) {
  const std::int64_t block_n = config.at("kBlockN"), block_k = config.at("kBlockK");
  // Panels of w as [k, n] are 64 columns wide, or 32.
  const std::int64_t panel = block_n % 64 == 0 ? 64 : 32;
  const std::int64_t w_columns = p.transposed ? round_up(block_n, panel) : block_n;
  const std::int64_t stage = 2 * block_k * (config.at("kBlockM") + w_columns);
  const std::int64_t staging = linear_threads(config) / 32 * 16 * 4 * (config.at("kWarpN") + 8);
  return std::max(config.at("kStages") * stage, staging);
}

std::int64_t linear_tiles(const LinearProblem& p, const Config& config) {
  return ceil_div(p.m, config.at("kBlockM")) * ceil_div(p.n, config.at("kBlockN"));
}

std::int64_t linear_split_columns(const LinearProblem& p, const Config& config) {
  const std::int64_t steps = ceil_div(p.k, config.at("kBlockK"));
  return ceil_div(steps, config.at("kSplits")) * config.at("kBlockK");
}

std::vector<KernelNeeds> linear_kernels(const LinearProblem& p, const Config& config) {
  std::vector<KernelNeeds> kernels = {
      {"vitune_linear", static_cast<int>(linear_threads(config)), linear_shared_bytes(p, config)}};
  if (config.at("kSplits") > 1) kernels.push_back({"vitune_linear_split_sum", kSumThreads, 0});
  return kernels;
}

LaunchPlan linear_plan(const LinearProblem& p, const Config& config) {
  const std::vector<KernelNeeds> kernels = linear_kernels(p, config);
  const std::int64_t splits = config.at("kSplits");
  LaunchPlan plan;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    // The second kernel's threads go on to further results where these are too few.
    constexpr std::int64_t kMostSumCtas = 65535;
    const std::int64_t sum_ctas = std::min(ceil_div(p.m * p.n, kSumThreads), kMostSumCtas);
    KernelLaunch launch;
    launch.kernel = i;
    launch.shape.grid[0] =
        static_cast<std::uint32_t>(i == 0 ? linear_tiles(p, config) * splits : sum_ctas);
    launch.shape.block[0] = static_cast<std::uint32_t>(kernels[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(kernels[i].shared_bytes);
    launch.params = parameter_bytes(params_of(p, config));
    launch.pointers.assign(std::begin(kPointers), std::end(kPointers));
    if (splits > 1) launch.pointers.push_back(kPartials);
    plan.kernels.push_back(std::move(launch));
  }
  if (splits > 1) plan.scratch_bytes = 4 * splits * p.m * p.n;
  return plan;
}

Demand linear_demand(const LinearProblem& p) {
  const double results = static_cast<double>(p.m) * static_cast<double>(p.n);
  const bool has_exponential =
      p.activation != LinearActivation::kNone && p.activation != LinearActivation::kRelu;
  return {.tensor_flops = p.flops(),
          .exponentials = has_exponential ? results : 0,
          .bytes = p.min_bytes()};
}

}  // namespace vitune
