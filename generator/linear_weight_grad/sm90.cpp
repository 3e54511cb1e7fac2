// generator/linear_weight_grad/sm90.cpp -- The family sm90: wgmma over parts of the rows, copies by
// tensor maps, and a kernel that adds the parts.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/sm90.h"

#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "templates/linear_weight_grad/sm90_params.cuh"

namespace vitune {

std::vector<TensorMapSlot> weight_grad_maps(const LinearWeightGradProblem& p,
                                            const GemmSm90& shape) {
  const auto matrix = [&p](WeightGradTensor tensor, std::size_t at, std::int64_t columns,
                           std::int64_t stride, std::int64_t box_rows) {
    // The stride of a single row is of no account, but a map's is a multiple of 16 bytes.
    return TensorMapSlot{.rank = 2,
                         .tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {columns, p.m},
                         .strides = {p.m > 1 ? stride : round_up(columns, 8)},
                         .columns = 64,
                         .rows = box_rows,
                         .swizzle = 128};
  };
  return {
      matrix(kWeightGradDy, offsetof(WeightGradTensorMaps, dy), p.n, p.dy_row, shape.a_box_rows()),
      matrix(kWeightGradX, offsetof(WeightGradTensorMaps, x), p.k, p.x_row, shape.b_box_rows())};
}

std::optional<std::string> weight_grad_sm90_refusal(const LinearWeightGradProblem& p,
                                                    const DeviceInfo& device) {
  if (device.cc_major != 9) return "it is for compute capability 9.0";
  if (p.k % 8 != 0) return formatted("{} columns: dw is stored in a multiple of 8", p.k);
  if (p.alignment < 16) {
    return formatted("tensor maps need 16-byte alignment, not {}", p.alignment);
  }
  constexpr std::int64_t kMostStride = std::int64_t{1} << 39;  // elements, exclusive
  const auto fits = [&p](std::int64_t row) {
    return p.m == 1 || (row % 8 == 0 && row < kMostStride);
  };
  if (fits(p.dy_row) && fits(p.x_row)) return std::nullopt;
  return std::string("tensor maps need rows of dy and x that begin at 16 bytes");
}

std::optional<std::string> WeightGradSm90::refusal(const Problem& problem,
                                                   const DeviceInfo& device) const {
  return weight_grad_sm90_refusal(linear_weight_grad_of(problem), device);
}

ConfigWords WeightGradSm90::own_words(const Config& config) const {
  constexpr const char* kPairs[] = {"", " pair", " pair_m"};
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm90 {}x{} {}g s{} {}p{}", value("kBlockM"), value("kBlockN"),
                    value("kGroups"), value("kStages"), value("kSplits"),
                    kPairs[std::clamp<std::int64_t>(value("kPair"), 0, 2)]),
          {"kBlockM", "kBlockN", "kGroups", "kStages", "kSplits", "kPair"}};
}

std::string WeightGradSm90::source(const Problem& problem, const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm90Shape shape(p, config);
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  const std::string text =
      config_source(templates(), weight_grad_facts_text(p) +
                                     geometry_text<GemmSm90>("GemmSm90", shape) +
                                     weight_grad_finish_text(p, shape.sums())) +
      entry_text(shape, entries.front().entry, "WeightGradParams", "WeightGradTensorMaps",
                 "weight_grad_gemm_sm90");
  return entries.size() > 1 ? text + weight_grad_finish_entry() : text;
}

std::vector<KernelNeeds> WeightGradSm90::kernels(const Problem& problem,
                                                 const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm90Shape shape(p, config);
  std::vector<KernelNeeds> kernels = {
      {"vitune_weight_grad", shape.threads(), shape.shared_bytes()}};
  if (shape.sums().needs_finish(p)) kernels.push_back(weight_grad_finish(p));
  return kernels;
}

LaunchPlan WeightGradSm90::plan(const Problem& problem, const Config& config,
                                const DeviceInfo& device, std::span<const int> resident) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm90Shape shape(p, config);
  const WeightGradSums sums = shape.sums();
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.shape = launch_shape(shape, shape.units(), device, resident);
  WeightGradParams params = weight_grad_params(p);
  params.splits = shape.splits;
  launch.params = parameter_bytes(params);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  launch.map_bytes = sizeof(WeightGradTensorMaps);
  launch.maps = weight_grad_maps(p, shape);
  if (sums.needs_finish(p)) plan.kernels.push_back(weight_grad_finish_launch(p, sums, 1, device));
  plan.scratch_bytes = sums.bytes(p);
  return plan;
}

const GemmFamily& weight_grad_sm90() {
  static const WeightGradSm90 instance;
  return instance;
}

}  // namespace vitune
