// generator/linear_weight_grad/sm80.h -- The family sm80 of weight gradients, and what follows from
// its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checked.h"
#include "generator/geometry.h"
#include "generator/linear_weight_grad/family.h"
#include "generator/linear_weight_grad/kernel_spec.h"
#include "templates/linear/geometry_sm80.cuh"

namespace vitune {

// Its kernels' geometry, and what the launch knows.
struct WeightGradSm80Shape : GemmSm80 {
  int splits;  // parts of the rows of dy and x, each with CTAs of its own
  std::int64_t m, n, k;
  bool bias;

  explicit WeightGradSm80Shape(const LinearWeightGradProblem& problem);  // the facts alone
  WeightGradSm80Shape(const LinearWeightGradProblem& problem, const Config& config);

  std::int64_t across() const { return ceil_div(k, block_n); }  // tiles along k
  std::int64_t ctas() const { return ceil_div(n, block_m) * across() * splits; }
  std::int64_t steps() const { return ceil_div(m, block_k); }  // of all rows
  WeightGradSums sums() const { return {splits, bias ? splits * across() : 0}; }
};

class WeightGradSm80 final : public GemmFamily {
 public:
  WeightGradSm80() : GemmFamily("sm80", weight_grad_families) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string templates() const override {
    return "#include \"linear_weight_grad/gemm_sm80.cuh\"\n"
           "#include \"linear_weight_grad/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  GemmBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), config.at("kBlockK")};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
