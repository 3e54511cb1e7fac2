// generator/linear_weight_grad/sm80.cpp -- The family sm80: mma.sync over parts of the rows, and a
// kernel that adds these.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/sm80.h"

#include "core/format.h"

namespace vitune {

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
  const std::string text =
      config_source(templates(), weight_grad_facts_text(p) +
                                     geometry_text<GemmSm80>("GemmSm80", shape) +
                                     weight_grad_finish_text(p, shape.sums())) +
      entry_text(shape.threads(), entries.front().entry, "WeightGradParams",
                 "weight_grad_gemm_sm80");
  return entries.size() > 1 ? text + weight_grad_finish_entry() : text;
}

std::vector<KernelNeeds> WeightGradSm80::kernels(const Problem& problem,
                                                 const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSm80Shape shape(p, config);
  std::vector<KernelNeeds> kernels = {
      {"vitune_weight_grad", shape.threads(), shape.shared_bytes()}};
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
  params.splits = shape.splits;
  launch.params = parameter_bytes(params);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  if (sums.needs_finish(p)) plan.kernels.push_back(weight_grad_finish_launch(p, sums, 1, device));
  plan.scratch_bytes = sums.bytes(p);
  return plan;
}

const GemmFamily& weight_grad_sm80() {
  static const WeightGradSm80 instance;
  return instance;
}

}  // namespace vitune
