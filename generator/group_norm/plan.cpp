// generator/group_norm/plan.cpp -- The launches of a group norm: one, or two and memory between.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>

#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kGroupNormX, offsetof(GroupNormParams, x)},
    {kGroupNormWeight, offsetof(GroupNormParams, weight)},
    {kGroupNormBias, offsetof(GroupNormParams, bias)},
    {kGroupNormOut, offsetof(GroupNormParams, out)},
};
constexpr PointerSlot kPartials = {PointerSlot::kScratch, offsetof(GroupNormParams, partials)};

}  // namespace

std::vector<PointerSlot> group_norm_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

LaunchPlan GroupNormFamily::plan(const Problem& problem, const Config& config,
                                 const DeviceInfo& device, std::span<const int>) const {
  const GroupNormProblem& p = group_norm_of(problem);
  const GroupNormTiling t = group_norm_tiling(p, config);
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  const std::int64_t groups = p.images * p.groups;
  const std::int64_t tiles = group_norm_tiles(p, t.groups);
  const bool has_scratch = t.chunks > 1 && !t.cluster;
  GroupNormParams params = {};
  params.groups = groups;
  params.eps = static_cast<float>(p.eps);
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    KernelLaunch launch;
    launch.kernel = i;
    // wait_for_earlier_grids() in templates.
    launch.shape.waits_for_earlier = device.cc_major >= 9 && config.at("kEarlyStart") != 0;
    launch.shape.grid[0] = static_cast<std::uint32_t>(tiles * t.chunks);
    launch.shape.block[0] = static_cast<std::uint32_t>(t.threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.params = parameter_bytes(params);
    launch.pointers = group_norm_pointers();
    if (has_scratch) launch.pointers.push_back(kPartials);
    plan.kernels.push_back(std::move(launch));
  }
  if (has_scratch) plan.scratch_bytes = 8 * groups * t.chunks;
  return plan;
}

}  // namespace vitune
