// generator/linear/cublaslt.cpp -- The family cublaslt: one call of cuBLASLt with an epilogue of
// its own.
//
// It has bias, ReLU, GELU by tanh and, without these two, a residual; all in fp32, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/library_family.h"
#include "generator/linear/family.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

constexpr int kMostProposals = 8;

bool has_activation(const LinearProblem& p, LinearActivation activation) {
  return p.activation == activation;
}

// The part of the problem that its epilogues lack, or nothing.
std::optional<std::string> lacks_epilogue(const LinearProblem& p) {
  const bool is_plain = has_activation(p, LinearActivation::kNone);
  const bool is_known = is_plain || has_activation(p, LinearActivation::kRelu) ||
                        has_activation(p, LinearActivation::kGeluTanh);
  if (!is_known) return "an activation that cuBLASLt does not have";
  if (p.norm != LinearNorm::kNone) return "rows that are normalised";
  if (p.scale) return "a scale";
  if (p.has_pre()) return "an activation's derivative";
  if (p.factor_rows > 0) return "a factor of rows";
  if (p.aux || p.moments > 0) return "a second result";
  if (p.residual && !is_plain) return "a residual behind an activation";
  if (p.period() > 0) return "rows in periods";
  if (p.bias && p.parameters != p.out) return "a bias of another type than the result";
  return std::nullopt;
}

class LinearCublasLt final : public GemmLibraryFamily {
 public:
  LinearCublasLt() : GemmLibraryFamily("cublaslt", linear_families, kMostProposals) {}
  std::optional<std::string> refusal(const Problem& problem, const DeviceInfo&) const override {
    return lacks_epilogue(linear_of(problem));
  }
  std::string templates() const override { return {}; }
  std::string source(const Problem& problem, const Config& config) const override {
    return linear_product_text(linear_of(problem)) + library_text(config);
  }
  std::vector<KernelNeeds> kernels(const Problem&, const Config&) const override { return {}; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo&,
                  std::span<const int>) const override {
    return plan_of_call(problem, config);
  }

 private:
  MatmulCall product(const Problem& problem) const override;
};

MatmulCall LinearCublasLt::product(const Problem& problem) const {
  const LinearProblem& p = linear_of(problem);
  const auto result = [&p](LinearTensor tensor, std::int64_t row) {
    return library_matrix(tensor, p.out, p.n, p.m, row, p.alignment);
  };
  MatmulCall call = linear_product(p, result(kLinearOut, p.out_row));
  if (p.residual) call.c = result(kLinearResidual, p.residual_row);
  if (p.bias) {
    call.bias = result(kLinearBias, p.n);
    call.bias->columns = 1;
  }
  if (has_activation(p, LinearActivation::kRelu)) {
    call.activation = MatmulCall::Activation::kRelu;
  } else if (has_activation(p, LinearActivation::kGeluTanh)) {
    call.activation = MatmulCall::Activation::kGeluTanh;
  }
  return call;
}

}  // namespace

const GemmFamily& linear_cublaslt() {
  static const LinearCublasLt instance;
  return instance;
}

}  // namespace vitune
