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
#include "generator/linear/family.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/library_product.h"

namespace vitune {
namespace {

constexpr int kMostProposals = 4, kThreads = 256;
constexpr std::int64_t kMostSumBytes = std::int64_t{1} << 30;  // of scratch memory
constexpr std::int64_t kScratchUnit = 256;
constexpr PointerSlot kSums = {PointerSlot::kScratch, offsetof(LinearParams, partials)};

std::int64_t sum_bytes(const LinearProblem& p) { return 4 * p.m * p.n; }

MatmulCall call_of(const LinearProblem& p) {
  MatrixSlot sums;
  sums.tensor = PointerSlot::kScratch;
  sums.type = ElementType::kFp32;
  sums.rows = sums.stride = p.n;
  sums.columns = p.m;
  sums.alignment = kScratchUnit;
  return library_product(p, sums);
}

class LinearChain final : public LinearLibraryFamily {
 public:
  std::string_view name() const override { return "chain"; }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const LinearProblem& p = linear_of(problem);
    if (!linear_cublaslt().refusal(problem, device)) return "one call of cuBLASLt does it all";
    if (p.has_moments()) return "moments of rows are sm90's";
    if (sum_bytes(p) > kMostSumBytes) return formatted("{} bytes of sums", sum_bytes(p));
    return std::nullopt;
  }
  std::string source(const Problem& problem, const Config& config) const override {
    return "namespace vitune {\nstruct Config {\n" + library_member(config) +
           linear_facts_text(linear_of(problem)) + "};\n}  // namespace vitune\n\n" + templates() +
           formatted(
               "\nextern \"C\" __global__ void __launch_bounds__({})\n"
               "vitune_linear_epilogue(const __grid_constant__ vitune::LinearParams params) {{\n"
               "  vitune::linear_split_sum<vitune::Config>(params);\n}}\n",
               kThreads);
  }
  std::vector<KernelNeeds> kernels(const Problem&, const Config&) const override {
    return {{"vitune_linear_epilogue", kThreads, 0}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  // The sum of one split.
  std::string templates() const override { return "#include \"linear/split_sum.cuh\"\n"; }
  std::vector<Config> proposals(const Problem& problem, Libraries& libraries) const override {
    return proposed(call_of(linear_of(problem)), libraries, kMostProposals);
  }
};

LaunchPlan LinearChain::plan(const Problem& problem, const Config& config, const DeviceInfo&,
                             std::span<const int>) const {
  const LinearProblem& p = linear_of(problem);
  constexpr std::int64_t kMostCtas = 65535;  // their threads go on to further results
  LaunchPlan plan;
  MatmulCall& call = plan.matmuls.emplace_back(call_of(p));
  call.algorithm = library_algorithm(config);
  call.workspace_at = round_up(sum_bytes(p), kScratchUnit);
  plan.scratch_bytes = call.workspace_at + call.algorithm.workspace_bytes;

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

const LinearFamily& linear_chain() {
  static const LinearChain instance;
  return instance;
}

}  // namespace vitune
