// generator/linear/chain.cpp -- The family chain: the product by cuBLASLt, then our epilogue in a
// kernel of its own.
//
// For what cuBLASLt's epilogues do not do: exact GELU and its derivative, LayerScale, a residual
// behind an activation, the folded norm. Sums stay in fp32 between the two, so that the result is
// rounded once, as everywhere.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/library_family.h"
#include "generator/linear/family.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

constexpr int kMostChains = 4, kThreads = 256;
constexpr std::int64_t kMostSumBytes = std::int64_t{1} << 30;  // of scratch memory
constexpr std::int64_t kScratchAlignment = 256;
constexpr char kEntry[] = "vitune_linear_epilogue";
constexpr PointerSlot kSums = {PointerSlot::kScratch, offsetof(LinearParams, partials)};

std::int64_t sum_bytes(const LinearProblem& p) { return 4 * p.m * p.n; }

class LinearChain final : public GemmLibraryFamily {
 public:
  LinearChain() : GemmLibraryFamily("chain", linear_families, kMostChains) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const LinearProblem& p = linear_of(problem);
    if (!linear_cublaslt().refusal(problem, device)) return "one call of cuBLASLt does it all";
    if (p.has_moments()) return "moments of rows are sm90's";
    if (sum_bytes(p) > kMostSumBytes) return formatted("{} bytes of sums", sum_bytes(p));
    return std::nullopt;
  }
  // The sum of one split.
  std::string templates() const override { return "#include \"linear/split_sum.cuh\"\n"; }
  std::string source(const Problem& problem, const Config& config) const override {
    return config_source(templates(),
                         library_member(config) + linear_facts_text(linear_of(problem))) +
           entry_text(kThreads, kEntry, "LinearParams", "linear_split_sum");
  }
  std::vector<KernelNeeds> kernels(const Problem&, const Config&) const override {
    return {{kEntry, kThreads, 0}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;

 private:
  MatmulCall product(const Problem& problem) const override {
    const LinearProblem& p = linear_of(problem);
    return linear_product(p, library_matrix(PointerSlot::kScratch, ElementType::kFp32, p.n, p.m,
                                            p.n, kScratchAlignment));
  }
};

LaunchPlan LinearChain::plan(const Problem& problem, const Config& config, const DeviceInfo&,
                             std::span<const int>) const {
  const LinearProblem& p = linear_of(problem);
  constexpr std::int64_t kMostCtas = 65535;  // their threads go on to further results
  LaunchPlan plan = plan_of_call(problem, config, sum_bytes(p));
  KernelLaunch& epilogue = plan.kernels.emplace_back();
  const std::int64_t groups = p.m * p.n / linear_accesses(p).vector;
  epilogue.shape.grid[0] =
      static_cast<std::uint32_t>(std::min(ceil_div(groups, std::int64_t{kThreads}), kMostCtas));
  epilogue.shape.block[0] = kThreads;
  epilogue.params = parameter_bytes(linear_params(p));
  epilogue.pointers = linear_pointers(p);
  epilogue.pointers.push_back(kSums);
  return plan;
}

}  // namespace

const GemmFamily& linear_chain() {
  static const LinearChain instance;
  return instance;
}

}  // namespace vitune
