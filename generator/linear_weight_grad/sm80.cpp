// generator/linear_weight_grad/sm80.cpp -- The family sm80: mma.sync over parts of the rows, and a
// kernel that adds these.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/sm80.h"

#include <algorithm>

#include "core/checked.h"
#include "core/format.h"

namespace vitune {

WeightGradSm80Shape::WeightGradSm80Shape(const LinearWeightGradProblem& problem,
                                         const Config& config)
    : block_m(config.at("kBlockM")),
      block_n(config.at("kBlockN")),
      block_k(config.at("kBlockK")),
      warp_m(config.at("kWarpM")),
      warp_n(config.at("kWarpN")),
      stages(config.find("kStages").value_or(0)),
      splits(config.find("kSplits").value_or(1)),
      problem_(problem) {}

std::int64_t WeightGradSm80Shape::shared_bytes() const {
  // Panels are 64 columns wide, or 32.
  const auto columns = [](std::int64_t block) {
    return round_up(block, block % 64 == 0 ? 64 : 32);
  };
  const std::int64_t stage = 2 * block_k * (columns(block_m) + columns(block_n));
  const std::int64_t staging = warps() * 16 * 4 * (warp_n + 8);
  return std::max(stages * stage, staging);
}

std::int64_t WeightGradSm80Shape::across() const { return ceil_div(problem_.k, block_n); }

std::int64_t WeightGradSm80Shape::tiles() const { return ceil_div(problem_.n, block_m) * across(); }

std::int64_t WeightGradSm80Shape::steps() const { return ceil_div(problem_.m, block_k); }

WeightGradSums WeightGradSm80Shape::sums() const {
  return {splits, problem_.bias ? splits * across() : 0};
}

// Products by mma.sync take more than twice as long as by wgmma, as those of linear layers do: they
// are for problems that are over before that matters.
std::optional<std::string> WeightGradSm80::refusal(const Problem& problem,
                                                   const DeviceInfo& device) const {
  constexpr double kManyOperations = 4e9;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  if (p.flops() < kManyOperations || weight_grad_sm90().refusal(problem, device)) {
    return std::nullopt;
  }
  return formatted("sm90 serves it, and {:.3g} operations are too many to be faster here",
                   p.flops());
}

ConfigWords WeightGradSm80::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm80 {}x{}x{} {}x{}w s{} {}p", value("kBlockM"), value("kBlockN"),
                    value("kBlockK"), value("kWarpM"), value("kWarpN"), value("kStages"),
                    value("kSplits")),
          {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages", "kSplits"}};
}

std::string WeightGradSm80::source(const Problem& problem, const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm80Shape shape(p, config);
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  std::string text = "namespace vitune {\nstruct Config {\n" + weight_grad_facts_text(p);
  for (const char* const name : {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages"}) {
    text += weight_grad_number(name, config.at(name));
  }
  text += weight_grad_number("kCtaThreads", shape.threads()) +
          weight_grad_number("kSharedBytes", shape.shared_bytes()) +
          weight_grad_finish_text(p, shape.sums()) + "};\n}  // namespace vitune\n\n" +
          templates() +
          formatted(
              "\nextern \"C\" __global__ void __launch_bounds__({})\n"
              "{}(const __grid_constant__ vitune::WeightGradParams params) {{\n"
              "  vitune::weight_grad_gemm_sm80<vitune::Config>(params);\n}}\n",
              entries.front().threads, entries.front().entry);
  if (entries.size() > 1) text += weight_grad_finish_entry();
  return text;
}

std::vector<KernelNeeds> WeightGradSm80::kernels(const Problem& problem,
                                                 const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm80Shape shape(p, config);
  std::vector<KernelNeeds> kernels = {
      {"vitune_weight_grad", static_cast<int>(shape.threads()), shape.shared_bytes()}};
  if (shape.sums().needs_finish(p)) kernels.push_back(weight_grad_finish(p));
  return kernels;
}

LaunchPlan WeightGradSm80::plan(const Problem& problem, const Config& config,
                                const DeviceInfo& device, std::span<const int>) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm80Shape shape(p, config);
  const WeightGradSums sums = shape.sums();
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.shape.grid[0] = static_cast<std::uint32_t>(shape.ctas());
  launch.shape.block[0] = static_cast<std::uint32_t>(shape.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  WeightGradParams params = weight_grad_params(p);
  params.splits = static_cast<int>(shape.splits);
  launch.params = parameter_bytes(params);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  if (sums.needs_finish(p)) plan.kernels.push_back(weight_grad_finish_launch(p, sums, 1, device));
  plan.scratch_bytes = sums.bytes(p);
  return plan;
}

const WeightGradFamily& weight_grad_sm80() {
  static const WeightGradSm80 instance;
  return instance;
}

}  // namespace vitune
