// generator/linear_weight_grad/plan.cpp -- What the kernels of all families are handed, and the
// kernel that finishes what products leave.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear_weight_grad/kernel_spec.h"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kWeightGradDy, offsetof(WeightGradParams, dy)},
    {kWeightGradX, offsetof(WeightGradParams, x)},
    {kWeightGradScale, offsetof(WeightGradParams, scale)},
    {kWeightGradW, offsetof(WeightGradParams, w)},
    {kWeightGradB, offsetof(WeightGradParams, b)},
    {kWeightGradDwBefore, offsetof(WeightGradParams, dw_before)},
    {kWeightGradDbBefore, offsetof(WeightGradParams, db_before)},
    {kWeightGradDscaleBefore, offsetof(WeightGradParams, dscale_before)},
    {kWeightGradDw, offsetof(WeightGradParams, dw)},
    {kWeightGradDb, offsetof(WeightGradParams, db)},
    {kWeightGradDscale, offsetof(WeightGradParams, dscale)},
};

constexpr int kFinishThreads = 256, kFinishWarps = kFinishThreads / 32;
constexpr std::int64_t kScratchUnit = 256;

// Groups of threads that share the parts: a thread has three of them at least.
std::int64_t part_groups(std::int64_t splits) {
  std::int64_t groups = 1;
  while (groups < kFinishWarps && splits >= 4 * groups) groups *= 2;
  return groups;
}

// Sums of the groups, and a word for each warp.
std::int64_t finish_bytes(const LinearWeightGradProblem& p) {
  return kFinishThreads * weight_grad_accesses(p).vector * 4 + kFinishWarps * 4;
}

}  // namespace

std::vector<PointerSlot> weight_grad_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

WeightGradParams weight_grad_params(const LinearWeightGradProblem& p) {
  WeightGradParams params = {};
  params.dy_row = p.dy_row;
  params.x_row = p.x_row;
  params.m = static_cast<int>(p.m);
  params.n = static_cast<int>(p.n);
  params.k = static_cast<int>(p.k);
  params.splits = 1;
  return params;
}

std::string weight_grad_number(std::string_view name, std::int64_t value) {
  return formatted("  static constexpr int {} = {};\n", name, value);
}

std::string weight_grad_flag(std::string_view name, bool value) {
  return formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
}

std::string weight_grad_facts_text(const LinearWeightGradProblem& p) {
  const WeightGradAccesses accesses = weight_grad_accesses(p);
  return weight_grad_number("kElement", judge_type(p.type)) +
         weight_grad_number("kOutput", judge_type(p.out)) +
         weight_grad_number("kParameters", judge_type(p.parameters)) +
         weight_grad_flag("kBias", p.bias) + weight_grad_flag("kScale", p.scale) +
         weight_grad_flag("kAdd", p.add) + weight_grad_number("kCopyDy", accesses.dy_bytes) +
         weight_grad_number("kCopyX", accesses.x_bytes) +
         weight_grad_number("kVector", accesses.vector);
}

std::int64_t WeightGradSums::columns_at(const LinearWeightGradProblem& p) const {
  return is_direct(p) ? 0 : round_up(4 * splits * p.n * p.k, kScratchUnit);
}

std::int64_t WeightGradSums::bytes(const LinearWeightGradProblem& p) const {
  return columns_at(p) + 4 * column_parts * p.n;
}

std::vector<PointerSlot> WeightGradSums::pointers(const LinearWeightGradProblem& p) const {
  std::vector<PointerSlot> slots;
  if (!is_direct(p)) {
    slots.push_back({PointerSlot::kScratch, offsetof(WeightGradParams, partials)});
  }
  if (column_parts > 0) {
    slots.push_back(
        {PointerSlot::kScratch, offsetof(WeightGradParams, column_sums), columns_at(p)});
  }
  return slots;
}

KernelNeeds weight_grad_finish(const LinearWeightGradProblem& p) {
  return {"vitune_weight_grad_finish", kFinishThreads, finish_bytes(p)};
}

std::string weight_grad_finish_text(const LinearWeightGradProblem& p, const WeightGradSums& sums) {
  return weight_grad_flag("kDirect", sums.is_direct(p)) +
         weight_grad_number("kPartGroups", part_groups(sums.splits)) +
         weight_grad_number("kFinishThreads", kFinishThreads) +
         weight_grad_number("kFinishBytes", finish_bytes(p));
}

std::string weight_grad_finish_entry() {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "vitune_weight_grad_finish(const __grid_constant__ vitune::WeightGradParams params) {{\n"
      "  vitune::weight_grad_finish<vitune::Config>(params);\n}}\n",
      kFinishThreads);
}

KernelLaunch weight_grad_finish_launch(const LinearWeightGradProblem& p, const WeightGradSums& sums,
                                       std::size_t place, const DeviceInfo& device) {
  KernelLaunch launch;
  launch.kernel = place;
  const std::int64_t ctas = sums.is_direct(p) ? ceil_div(p.n, std::int64_t{kFinishWarps}) : p.n;
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas);
  launch.shape.block[0] = kFinishThreads;
  launch.shape.shared_bytes = static_cast<std::uint32_t>(finish_bytes(p));
  launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  WeightGradParams params = weight_grad_params(p);
  params.splits = static_cast<int>(sums.splits);
  params.column_parts = static_cast<int>(sums.column_parts);
  launch.params = parameter_bytes(params);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  return launch;
}

}  // namespace vitune
