// generator/linear_weight_grad/chain.cpp -- The family chain: the product by cuBLASLt, then kernels
// of ours for the sums of dy's rows, a scale and its gradient.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/library_family.h"
#include "generator/linear_weight_grad/kernel_spec.h"

namespace vitune {
namespace {

constexpr int kMostChains = 6, kSumThreads = 256;
constexpr std::int64_t kMostSumBytes = std::int64_t{1} << 30;  // of scratch memory
constexpr char kSumEntry[] = "vitune_weight_grad_column_sums";

// Columns of dy that a thread reads at once.
std::int64_t sum_vector(const LinearWeightGradProblem& p) {
  std::int64_t vector = weight_grad_accesses(p).dy_bytes / element_bytes(p.type);
  while (p.n % vector != 0) vector /= 2;
  return vector;
}

std::int64_t sum_bytes(const LinearWeightGradProblem& p) { return kSumThreads * sum_vector(p) * 4; }

// CTAs that have a part of the rows.
std::int64_t sum_columns(const LinearWeightGradProblem& p) {
  return ceil_div(p.n, 32 * sum_vector(p));
}

WeightGradSums sums_of(const LinearWeightGradProblem& p) {
  if (!p.bias) return {};
  constexpr std::int64_t kCtas = 528;  // four for each SM of an H200
  constexpr std::int64_t kLeastRows = 32;
  const std::int64_t most = ceil_div(p.m, kLeastRows);
  return {1, std::clamp<std::int64_t>(kCtas / sum_columns(p), 1, most)};
}

class WeightGradChain final : public GemmLibraryFamily {
 public:
  WeightGradChain() : GemmLibraryFamily("chain", weight_grad_families, kMostChains) {}
  std::optional<std::string> refusal(const Problem& problem, const DeviceInfo&) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    if (!p.bias && !p.scale) return "one call of cuBLASLt does it all";
    const std::int64_t bytes = sums_of(p).bytes(p);
    if (bytes > kMostSumBytes) return formatted("{} bytes of sums", bytes);
    return std::nullopt;
  }
  std::string templates() const override {
    return "#include \"linear_weight_grad/column_sums.cuh\"\n"
           "#include \"linear_weight_grad/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config&) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    std::vector<KernelNeeds> kernels;
    if (p.bias) kernels.push_back({kSumEntry, kSumThreads, sum_bytes(p)});
    kernels.push_back(weight_grad_finish(p));
    return kernels;
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;

 private:
  MatmulCall product(const Problem& problem) const override {
    return weight_grad_product(linear_weight_grad_of(problem));
  }
};

std::string WeightGradChain::source(const Problem& problem, const Config& config) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  std::string text = config_source(templates(), library_member(config) + weight_grad_facts_text(p) +
                                                    weight_grad_finish_text(p, sums_of(p)) +
                                                    config_number("kSumVector", sum_vector(p)) +
                                                    config_number("kSumThreads", kSumThreads));
  if (p.bias) {
    text += entry_text(kSumThreads, kSumEntry, "WeightGradParams", "weight_grad_column_sums");
  }
  return text + weight_grad_finish_entry();
}

LaunchPlan WeightGradChain::plan(const Problem& problem, const Config& config,
                                 const DeviceInfo& device, std::span<const int>) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const WeightGradSums sums = sums_of(p);
  LaunchPlan plan = plan_of_call(problem, config, sums.bytes(p));
  if (p.bias) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.shape.grid[0] = static_cast<std::uint32_t>(sum_columns(p) * sums.column_parts);
    launch.shape.block[0] = kSumThreads;
    launch.shape.shared_bytes = static_cast<std::uint32_t>(sum_bytes(p));
    WeightGradParams params = weight_grad_params(p);
    params.column_parts = static_cast<int>(sums.column_parts);
    launch.params = parameter_bytes(params);
    launch.pointers = weight_grad_pointers();
    for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  }
  plan.kernels.push_back(weight_grad_finish_launch(p, sums, plan.kernels.size(), device));
  return plan;
}

}  // namespace

const GemmFamily& weight_grad_chain() {
  static const WeightGradChain instance;
  return instance;
}

}  // namespace vitune
