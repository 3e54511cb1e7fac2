// generator/linear_weight_grad/plan.cpp -- What the kernels of all families are handed, and the
// kernel that finishes what products leave.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/library_family.h"
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

constexpr char kFinishEntry[] = "vitune_weight_grad_finish";
constexpr int kFinishThreads = 256, kFinishWarps = kFinishThreads / 32;

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

MatmulCall weight_grad_product(const LinearWeightGradProblem& p) {
  MatmulCall call;
  call.a = library_matrix(kWeightGradX, p.type, p.k, p.m, p.x_row, p.alignment);
  call.b = library_matrix(kWeightGradDy, p.type, p.n, p.m, p.dy_row, p.alignment);
  call.transpose_b = true;
  if (p.scale) {
    call.d = library_matrix(PointerSlot::kScratch, ElementType::kFp32, p.k, p.n, p.k, kScratchUnit);
    return call;
  }
  call.d = library_matrix(kWeightGradDw, p.out, p.k, p.n, p.k, p.alignment);
  if (p.add) call.c = library_matrix(kWeightGradDwBefore, p.out, p.k, p.n, p.k, p.alignment);
  return call;
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

std::string weight_grad_facts_text(const LinearWeightGradProblem& p) {
  const WeightGradAccesses accesses = weight_grad_accesses(p);
  return config_number("kElement", judge_type(p.type)) +
         config_number("kOutput", judge_type(p.out)) +
         config_number("kParameters", judge_type(p.parameters)) + config_flag("kBias", p.bias) +
         config_flag("kScale", p.scale) + config_flag("kAdd", p.add) +
         config_number("kCopyDy", accesses.dy_bytes) + config_number("kCopyX", accesses.x_bytes) +
         config_number("kVector", accesses.vector);
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
  return {kFinishEntry, kFinishThreads, finish_bytes(p)};
}

std::string weight_grad_finish_text(const LinearWeightGradProblem& p, const WeightGradSums& sums) {
  return config_flag("kDirect", sums.is_direct(p)) +
         config_number("kPartGroups", part_groups(sums.splits)) +
         config_number("kFinishThreads", kFinishThreads) +
         config_number("kFinishBytes", finish_bytes(p));
}

std::string weight_grad_finish_entry() {
  return entry_text(kFinishThreads, kFinishEntry, "WeightGradParams", "weight_grad_finish");
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
