// generator/window_attention_backward/plan.cpp -- The launches of window attention's gradients:
// whatever the family, one kernel for all windows, one that adds its sums, one for a table.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "generator/window_attention_backward/kernel_spec.h"

namespace vitune {
namespace {

using Shape = WindowBackwardGeometry;
using Params = WindowAttentionBackwardParams;

constexpr std::int64_t kMostPartials = std::int64_t{256} << 20;  // bytes of all CTAs' sums

// CTAs of an entry, so that all of them are on the device at once, and their sums not too large.
std::int64_t parts_of(const WindowAttentionBackwardProblem& p, const DeviceInfo& device,
                      std::int64_t resident) {
  const std::int64_t room =
      std::max<std::int64_t>(device.sm_count, 1) * std::max<std::int64_t>(resident, 1);
  std::int64_t parts = std::min(room / p.entries(), p.instances());
  if (p.sums_bias()) {
    const std::int64_t each = 4 * p.entries() * p.forward.keys() * p.forward.keys();
    parts = std::min(parts, kMostPartials / each);
  }
  return std::max<std::int64_t>(parts, 1);
}

// What the kernels leave each other: sums of CTAs, of padding, and dbias for a table.
struct Scratch {
  std::int64_t padding = 0, dbias = 0, end = 0;

  Scratch(const WindowAttentionBackwardProblem& p, std::int64_t ctas) {
    const std::int64_t keys = p.forward.keys();
    padding = p.sums_bias() ? round_up(4 * ctas * keys * keys, kScratchUnit) : 0;
    dbias = padding + (p.has_dpadding() ? round_up(8 * ctas * p.forward.d, kScratchUnit) : 0);
    end = dbias + (p.table_rows != 0 ? 4 * p.bias_elements() : 0);
  }
};

std::vector<PointerSlot> pointers_of(const WindowAttentionBackwardProblem& p,
                                     const Scratch& scratch) {
  std::vector<PointerSlot> pointers = window_attention_backward_pointers();
  constexpr int kScratch = PointerSlot::kScratch;
  if (p.sums_bias()) pointers.push_back({kScratch, offsetof(Params, partials)});
  if (p.has_dpadding()) {
    pointers.push_back({kScratch, offsetof(Params, padding_partials), scratch.padding});
  }
  if (p.table_rows != 0) {
    std::erase_if(pointers, [](const auto& slot) { return slot.tensor == kWindowBackwardDbias; });
    pointers.push_back({kScratch, offsetof(Params, dbias), scratch.dbias});
  }
  return pointers;
}

}  // namespace

LaunchPlan window_attention_backward_plan(const WindowAttentionBackwardProblem& p,
                                          const std::vector<KernelNeeds>& needs,
                                          const DeviceInfo& device, std::span<const int> resident) {
  constexpr std::int64_t kMostFinishCtas = 1 << 16;
  const std::int64_t parts = parts_of(p, device, resident.empty() ? 1 : resident.front());
  const std::int64_t ctas = parts * p.entries();
  const Scratch scratch(p, ctas);
  const std::int64_t sums = std::max(p.sums_bias() ? p.bias_elements() : 0,
                                     p.has_dpadding() ? 3 * p.forward.heads * p.forward.d : 0);
  const std::int64_t table_ctas =
      p.table_rows == 0
          ? 0
          : p.table_rows * ceil_div(p.forward.bias->heads, std::int64_t{Shape::kTableHeads});
  const std::int64_t grids[] = {
      ctas, std::min(ceil_div(sums, std::int64_t{Shape::kFinishThreads}), kMostFinishCtas),
      table_ctas};
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (grids[i] == 0) continue;
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.waits_for_earlier = i == 0 && device.cc_major >= 9;  // as in templates
    launch.shape.grid[0] = static_cast<std::uint32_t>(grids[i]);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.params = parameter_bytes(window_attention_backward_params(p, parts));
    launch.pointers = pointers_of(p, scratch);
  }
  plan.scratch_bytes = scratch.end;
  return plan;
}

}  // namespace vitune
