// generator/linear_weight_grad/sm80.h -- The family sm80 of weight gradients, and what follows from
// its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/linear_weight_grad/family.h"
#include "generator/linear_weight_grad/kernel_spec.h"

namespace vitune {

// As templates/linear_weight_grad/config_sm80.cuh has it.
struct WeightGradSm80Shape {
  WeightGradSm80Shape(const LinearWeightGradProblem& problem, const Config& config);

  std::int64_t block_m, block_n, block_k, warp_m, warp_n, stages, splits;

  std::int64_t warps() const { return block_m / warp_m * (block_n / warp_n); }
  std::int64_t threads() const { return 32 * warps(); }
  std::int64_t shared_bytes() const;
  std::int64_t across() const;  // tiles along k
  std::int64_t tiles() const;
  std::int64_t ctas() const { return tiles() * splits; }
  std::int64_t steps() const;  // of all rows
  WeightGradSums sums() const;

 private:
  const LinearWeightGradProblem& problem_;
};

class WeightGradSm80 final : public WeightGradFamily {
 public:
  std::string_view name() const override { return "sm80"; }
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
  WeightGradBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), config.at("kBlockK")};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
