// generator/linear_weight_grad/cublaslt.cpp -- The family cublaslt: one call of cuBLASLt, the bias'
// gradient by an epilogue of its own.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/library_family.h"
#include "generator/linear_weight_grad/kernel_spec.h"

namespace vitune {
namespace {

constexpr int kMostProposals = 8;

class WeightGradCublasLt final : public GemmLibraryFamily {
 public:
  WeightGradCublasLt() : GemmLibraryFamily("cublaslt", weight_grad_families, kMostProposals) {}
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
    return plan_of_call(problem, config);
  }

 private:
  MatmulCall product(const Problem& problem) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    MatmulCall call = weight_grad_product(p);
    if (p.bias) call.b_sums = library_matrix(kWeightGradDb, p.out, p.n, 1, p.n, p.alignment);
    return call;
  }
};

}  // namespace

const GemmFamily& weight_grad_cublaslt() {
  static const WeightGradCublasLt instance;
  return instance;
}

}  // namespace vitune
