// generator/linear_weight_grad/sm90.h -- The family sm90 of weight gradients, what follows from its
// configs, and what families on wgmma share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checked.h"
#include "generator/geometry.h"
#include "generator/linear_weight_grad/family.h"
#include "generator/linear_weight_grad/kernel_spec.h"
#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

// Its kernels' geometry, and what the launch knows.
struct WeightGradSm90Shape : GemmSm90 {
  int splits;  // parts of the rows of dy and x, each with CTAs of its own
  std::int64_t m, n, k;

  explicit WeightGradSm90Shape(const LinearWeightGradProblem& problem);  // the facts alone
  WeightGradSm90Shape(const LinearWeightGradProblem& problem, const Config& config);

  std::int64_t units() const { return units_of(*this, n, k) * splits; }
  std::int64_t steps() const { return ceil_div(m, kDepth); }  // of all rows
  WeightGradSums sums() const { return {splits, ones != 0 ? splits * ceil_div(k, block_n) : 0}; }
};

// What families on wgmma share: why they cannot compute a problem, or nothing; how TMA sees dy and
// x.
std::optional<std::string> weight_grad_sm90_refusal(const LinearWeightGradProblem& problem,
                                                    const DeviceInfo& device);
std::vector<TensorMapSlot> weight_grad_maps(const LinearWeightGradProblem& problem,
                                            const GemmSm90& shape);

class WeightGradWgmmaFamily : public GemmFamily {
 public:
  bool is_of_one_architecture() const final { return true; }
  int harmless_spill_bytes() const final { return 16; }
  bool reads_tensor_maps(const Config&) const final { return true; }
  GemmBlock block(const Config& config) const final {
    return {config.at("kBlockM"), config.at("kBlockN"), GemmSm90::kDepth};
  }

 protected:
  explicit WeightGradWgmmaFamily(std::string_view name) : GemmFamily(name, weight_grad_families) {}
};

class WeightGradSm90 final : public WeightGradWgmmaFamily {
 public:
  WeightGradSm90() : WeightGradWgmmaFamily("sm90") {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string templates() const override {
    return "#include \"linear_weight_grad/gemm_sm90.cuh\"\n"
           "#include \"linear_weight_grad/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
