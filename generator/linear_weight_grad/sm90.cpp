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

WeightGradSm90Shape::WeightGradSm90Shape(const LinearWeightGradProblem& problem,
                                         const Config& config)
    : block_m(config.at("kBlockM")),
      block_n(config.at("kBlockN")),
      stages(config.find("kStages").value_or(0)),
      splits(config.find("kSplits").value_or(1)),
      groups(config.at("kGroups")),
      pair(config.find("kPair").value_or(0)),
      problem_(problem) {}

std::int64_t WeightGradSm90Shape::across() const { return ceil_div(problem_.k, block_n); }

std::int64_t WeightGradSm90Shape::part_units() const {
  const std::int64_t down = ceil_div(problem_.n, block_m);
  return (pair == 1 ? ceil_div(across(), std::int64_t{2}) : across()) *
         (pair == 2 ? ceil_div(down, std::int64_t{2}) : down);
}

std::int64_t WeightGradSm90Shape::steps() const { return ceil_div(problem_.m, kDepth); }

WeightGradSums WeightGradSm90Shape::sums() const {
  return {splits, problem_.bias ? splits * across() : 0};
}

std::vector<TensorMapSlot> WeightGradSm90Shape::maps() const {
  const LinearWeightGradProblem& p = problem_;
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
  return {matrix(kWeightGradDy, offsetof(WeightGradTensorMaps, dy), p.n, p.dy_row,
                 kDepth / (pair == 1 ? 2 : 1)),
          matrix(kWeightGradX, offsetof(WeightGradTensorMaps, x), p.k, p.x_row,
                 kDepth / (pair == 2 ? 2 : 1))};
}

std::optional<std::string> WeightGradSm90::refusal(const Problem& problem,
                                                   const DeviceInfo& device) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
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
  std::string text = "namespace vitune {\nstruct Config {\n" + weight_grad_facts_text(p);
  for (const char* const name : {"kBlockM", "kBlockN", "kStages", "kGroups", "kPair"}) {
    text += weight_grad_number(name, config.at(name));
  }
  text += weight_grad_number("kCtaThreads", shape.threads()) +
          weight_grad_number("kSharedBytes", shape.shared_bytes()) +
          weight_grad_finish_text(p, shape.sums()) + "};\n}  // namespace vitune\n\n" + templates();
  // The size of its clusters is a fact of the kernel: an ordinary launch has them too.
  const std::string cluster = shape.pair > 0 ? "__cluster_dims__(2, 1, 1) " : "";
  text += formatted(
      "\nextern \"C\" __global__ void {}__launch_bounds__({}, 1)\n"
      "{}(const __grid_constant__ vitune::WeightGradParams params,\n"
      "   const __grid_constant__ vitune::WeightGradTensorMaps maps) {{\n"
      "  vitune::weight_grad_gemm_sm90<vitune::Config>(params, maps);\n}}\n",
      cluster, entries.front().threads, entries.front().entry);
  if (entries.size() > 1) text += weight_grad_finish_entry();
  return text;
}

std::vector<KernelNeeds> WeightGradSm90::kernels(const Problem& problem,
                                                 const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm90Shape shape(p, config);
  std::vector<KernelNeeds> kernels = {
      {"vitune_weight_grad", static_cast<int>(shape.threads()), shape.shared_bytes()}};
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
  // Clusters that stay: as many as the device holds at once.
  const std::int64_t room = std::max(device.sm_count, 1) * std::max(resident.front(), 1);
  const std::int64_t clusters = std::max<std::int64_t>(room / shape.cluster(), 1);
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(std::min(shape.units(), clusters) * shape.cluster());
  launch.shape.block[0] = static_cast<std::uint32_t>(shape.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
  WeightGradParams params = weight_grad_params(p);
  params.splits = static_cast<int>(shape.splits);
  launch.params = parameter_bytes(params);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  launch.map_bytes = sizeof(WeightGradTensorMaps);
  launch.maps = shape.maps();
  if (sums.needs_finish(p)) plan.kernels.push_back(weight_grad_finish_launch(p, sums, 1, device));
  plan.scratch_bytes = sums.bytes(p);
  return plan;
}

const WeightGradFamily& weight_grad_sm90() {
  static const WeightGradSm90 instance;
  return instance;
}

}  // namespace vitune
