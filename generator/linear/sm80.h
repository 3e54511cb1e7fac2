// generator/linear/sm80.h -- The family sm80, and what follows from its configs.
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
#include "generator/linear/family.h"
#include "generator/linear/problem.h"

namespace vitune {

// As templates/linear/config_sm80.cuh has it.
std::int64_t linear_sm80_threads(const Config& config);
std::int64_t linear_sm80_shared_bytes(const LinearProblem& problem, const Config& config);
// CTAs of one split, and columns of x of each split: whole steps.
std::int64_t linear_sm80_tiles(const LinearProblem& problem, const Config& config);
std::int64_t linear_sm80_split_columns(const LinearProblem& problem, const Config& config);

class LinearSm80 final : public LinearFamily {
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
  std::string templates() const override { return "#include \"linear/gemm_sm80.cuh\"\n"; }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  LinearBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), config.at("kBlockK")};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
