// generator/norm/plan.cpp -- The one launch of a norm.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "generator/norm/kernel_spec.h"
#include "templates/norm/params.cuh"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kNormX, offsetof(NormParams, x)},           {kNormResidual, offsetof(NormParams, residual)},
    {kNormWeight, offsetof(NormParams, weight)}, {kNormBias, offsetof(NormParams, bias)},
    {kNormOut, offsetof(NormParams, out)},       {kNormSum, offsetof(NormParams, sum)},
    {kNormSecond, offsetof(NormParams, second)}, {kNormMean, offsetof(NormParams, mean)},
    {kNormRstd, offsetof(NormParams, rstd)},
};

}  // namespace

KernelNeeds norm_kernel(const Config& config) {
  const std::int64_t row_threads = config.at("kRowThreads"), rows = config.at("kRows");
  // Two sums of a row, a word for each of its warps (templates/norm/row_sum.cuh).
  const std::int64_t shared = row_threads > 32 ? 2 * 4 * (row_threads / 32) * rows : 0;
  return {norm_entry(), static_cast<int>(row_threads * rows), shared};
}

LaunchPlan norm_plan(const NormProblem& p, const Config& config, const DeviceInfo& device,
                     int resident) {
  const KernelNeeds needs = norm_kernel(config);
  const std::int64_t ctas = ceil_div(p.rows, config.at("kRows"));
  const std::int64_t room = std::int64_t{std::max(device.sm_count, 1)} * std::max(resident, 1);
  KernelLaunch launch;
  // wait_for_earlier_grids() in templates; it takes each CTA a while even if there is nothing to
  // wait for, as long as the launch asked for an early start.
  launch.shape.waits_for_earlier = device.cc_major >= 9 && config.at("kEarlyStart") != 0;
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(config.at("kPersistent") != 0 ? std::min(ctas, room) : ctas);
  launch.shape.block[0] = static_cast<std::uint32_t>(needs.threads);
  launch.shape.shared_bytes = static_cast<std::uint32_t>(needs.shared_bytes);
  NormParams params = {};
  params.x_row = p.x_row;
  params.residual_row = p.residual_row;
  params.out_row = p.out_row;
  params.sum_row = p.sum_row;
  params.second_row = p.second_row;
  params.rows = p.rows;
  params.eps = static_cast<float>(p.eps);
  launch.params = parameter_bytes(params);
  launch.pointers.assign(std::begin(kPointers), std::end(kPointers));
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

Demand norm_demand(const NormProblem& p) {
  // Unpack, two of each pass over the registers, scale, pack: at least so many per element.
  constexpr double kInstructions = 5;
  return {.instructions = kInstructions * static_cast<double>(p.rows) * static_cast<double>(p.d),
          .bytes = p.min_bytes()};
}

}  // namespace vitune
