// generator/group_norm/plan.cpp -- The launches of a group norm: one, or two and memory between.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"
#include "templates/group_norm/params.cuh"

namespace vitune {
namespace {

constexpr PointerSlot kX = {kGroupNormX, offsetof(GroupNormParams, x)};
constexpr PointerSlot kWeight = {kGroupNormWeight, offsetof(GroupNormParams, weight)};
constexpr PointerSlot kBias = {kGroupNormBias, offsetof(GroupNormParams, bias)};
constexpr PointerSlot kOut = {kGroupNormOut, offsetof(GroupNormParams, out)};
constexpr PointerSlot kPartials = {PointerSlot::kScratch, offsetof(GroupNormParams, partials)};

// The plan of the grid's kernel, of so many CTAs, and of the one that clears so many words: that
// one comes first, and lets the other begin when all before both has ended.
void clear_first(LaunchPlan& plan, std::int64_t ctas, std::int64_t words) {
  KernelLaunch &grid = plan.kernels[0], &clear = plan.kernels[1];
  grid.shape.grid[0] = static_cast<std::uint32_t>(ctas);
  grid.shape.is_cooperative = true;
  clear.shape.grid[0] = static_cast<std::uint32_t>(ceil_div(words, clear.shape.block[0]));
  std::swap(grid, clear);
}

// Of a device that shares its SMs with other processes a program may see a part.
void require_room(std::int64_t ctas, const DeviceInfo& device, int resident) {
  const std::int64_t room = std::int64_t{device.sm_count} * resident;
  if (ctas <= room || device.sm_count == 0) return;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} CTAs have to run at once, the device has room for {}", ctas, room));
}

}  // namespace

std::vector<KernelNeeds> group_norm_kernels(const GroupNormProblem& p, const Config& config) {
  const GroupNormTiling t = group_norm_tiling(p, config);
  const int threads = static_cast<int>(t.threads);
  if (t.cluster) {
    return {{"vitune_group_norm_cluster", threads, t.cluster_bytes()}};
  }
  if (t.grid()) {
    return {{"vitune_group_norm_grid", threads, t.grid_bytes()},
            {"vitune_group_norm_clear", threads, 0}};
  }
  if (t.chunks == 1) {
    return {{"vitune_group_norm", threads, t.moment_bytes() + (t.sliced ? t.scale_bytes() : 0)}};
  }
  return {{"vitune_group_norm_statistics", threads, t.moment_bytes()},
          {"vitune_group_norm_apply", threads, t.scale_bytes()}};
}

LaunchPlan group_norm_plan(const GroupNormProblem& p, const Config& config,
                           const DeviceInfo& device, int resident) {
  const GroupNormTiling t = group_norm_tiling(p, config);
  const std::vector<KernelNeeds> kernels = group_norm_kernels(p, config);
  const std::int64_t groups = p.images * p.groups;
  const std::int64_t tiles = group_norm_tiles(p, t.groups);
  const bool has_scratch = t.chunks > 1 && !t.cluster;
  GroupNormParams params = {};
  params.groups = groups;
  params.eps = static_cast<float>(p.eps);
  LaunchPlan plan;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    KernelLaunch launch;
    launch.kernel = i;
    // wait_for_earlier_grids() in templates.
    launch.shape.waits_for_earlier = device.cc_major >= 9 && config.at("kEarlyStart") != 0;
    launch.shape.grid[0] = static_cast<std::uint32_t>(tiles * t.chunks);
    launch.shape.block[0] = static_cast<std::uint32_t>(t.threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(kernels[i].shared_bytes);
    launch.params = parameter_bytes(params);
    launch.pointers = {kX, kWeight, kBias, kOut};
    if (has_scratch) launch.pointers.push_back(kPartials);
    plan.kernels.push_back(std::move(launch));
  }
  if (has_scratch) plan.scratch_bytes = 8 * groups * t.chunks;
  if (t.grid()) {
    const std::optional<std::int64_t> ctas = group_norm_grid_ctas(p, t);
    if (!ctas) {
      throw Error(ErrorCode::kFailure,
                  formatted("{} turns are no whole groups of {}", t.turns, p.text()));
    }
    require_room(*ctas, device, resident);
    clear_first(plan, *ctas, groups * t.chunks);
  }
  return plan;
}

Demand group_norm_demand(const GroupNormProblem& p) {
  // Unpack, two of each pass over the registers, subtract, scale, pack: at least so many per
  // element; an activation adds a product, a sum and a quotient.
  const bool active = p.activation != GroupNormActivation::kNone;
  const double elements = static_cast<double>(p.elements());
  return {.exponentials = active ? elements : 0,
          .instructions = (active ? 9.0 : 6.0) * elements,
          .bytes = p.min_bytes()};
}

}  // namespace vitune
