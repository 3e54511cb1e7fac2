// generator/linear_weight_grad/cublaslt.cpp -- The family cublaslt: one call of cuBLASLt, the bias'
// gradient by an epilogue of its own.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/library_family.h"

namespace vitune {
namespace {

constexpr int kMostProposals = 8;

MatmulCall call_of(const LinearWeightGradProblem& p) {
  MatmulCall call = weight_grad_product(p);
  if (p.bias) {
    MatrixSlot sums;
    sums.tensor = kWeightGradDb;
    sums.type = p.out;
    sums.rows = sums.stride = p.n;
    sums.columns = 1;
    sums.alignment = p.alignment;
    call.b_sums = sums;
  }
  return call;
}

class WeightGradCublasLt final : public WeightGradLibraryFamily {
 public:
  std::string_view name() const override { return "cublaslt"; }
  std::optional<std::string> refusal(const Problem& problem, const DeviceInfo&) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    if (p.scale) return "a scale";
    if (p.bias && p.add) return "cuBLASLt adds nothing to the sums of rows";
    return std::nullopt;
  }
  std::string templates() const override { return {}; }
  std::string source(const Problem& problem, const Config& config) const override {
    return weight_grad_facts_text(linear_weight_grad_of(problem)) + library_text(config);
  }
  std::vector<KernelNeeds> kernels(const Problem&, const Config&) const override { return {}; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo&,
                  std::span<const int>) const override {
    LaunchPlan plan;
    MatmulCall& call = plan.matmuls.emplace_back(call_of(linear_weight_grad_of(problem)));
    call.algorithm = library_algorithm(config);
    plan.scratch_bytes = call.algorithm.workspace_bytes;
    return plan;
  }
  std::vector<Config> proposals(const Problem& problem, Libraries& libraries) const override {
    return proposed(call_of(linear_weight_grad_of(problem)), libraries, kMostProposals);
  }
};

}  // namespace

const WeightGradFamily& weight_grad_cublaslt() {
  static const WeightGradCublasLt instance;
  return instance;
}

}  // namespace vitune
