// generator/linear_weight_grad/sm90.h -- The family sm90 of weight gradients, and what follows from
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

// As templates/linear_weight_grad/config_sm90.cuh has it.
struct WeightGradSm90Shape {
  WeightGradSm90Shape(const LinearWeightGradProblem& problem, const Config& config);

  static constexpr std::int64_t kDepth = 64;

  std::int64_t block_m, block_n, stages, splits, groups, pair;

  std::int64_t threads() const { return 128 * (groups + 1); }
  std::int64_t cluster() const { return pair > 0 ? 2 : 1; }
  std::int64_t thread_sums() const { return block_m / groups / 64 * block_n / 2; }
  std::int64_t stage_bytes() const { return (block_m + block_n) * kDepth * 2; }
  std::int64_t shared_bytes() const { return stages * (stage_bytes() + 16) + ones_bytes(); }
  std::int64_t most_stages(std::int64_t shared) const {
    return (shared - ones_bytes()) / (stage_bytes() + 16);
  }
  std::int64_t across() const;      // tiles along k
  std::int64_t part_units() const;  // tiles, or pairs of them, of a part of the rows
  std::int64_t units() const { return part_units() * splits; }
  std::int64_t steps() const;  // of all rows
  WeightGradSums sums() const;
  std::vector<TensorMapSlot> maps() const;

 private:
  std::int64_t ones_bytes() const { return problem_.bias ? 1024 : 0; }

  const LinearWeightGradProblem& problem_;
};

class WeightGradSm90 final : public WeightGradFamily {
 public:
  std::string_view name() const override { return "sm90"; }
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
  bool is_of_one_architecture() const override { return true; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  int harmless_spill_bytes() const override { return 16; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool reads_tensor_maps(const Config&) const override { return true; }
  WeightGradBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), WeightGradSm90Shape::kDepth};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
