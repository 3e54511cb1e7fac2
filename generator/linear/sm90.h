// generator/linear/sm90.h -- The families on wgmma of linear layers, and what follows from their
// configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.h"
#include "generator/geometry.h"
#include "generator/launch_plan.h"
#include "generator/linear/family.h"
#include "generator/linear/problem.h"
#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

// Why no family on wgmma can answer the problem on the device, or nothing.
std::optional<std::string> linear_sm90_refusal(const LinearProblem& problem,
                                               const DeviceInfo& device);

// Source, kernels and plan: families differ in tunables, and in who has which part of k.
class LinearWgmmaFamily : public GemmFamily {
 public:
  // A config's geometry.
  GemmSm90 shape(const LinearProblem& problem, const Config& config) const {
    return read_tunables(tunables_, config, facts(problem));
  }

  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    return linear_sm90_refusal(linear_of(problem), device);
  }
  std::vector<Parameter> tunables() const override { return parameters_of(tunables_); }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::string templates() const override;
  std::string source(const Problem& problem, const Config& config) const override;
  bool is_of_one_architecture() const override { return true; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  int harmless_spill_bytes() const override { return 16; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool reads_tensor_maps(const Config&) const override { return true; }

 protected:
  // `fixed`: what it does not tune; `kernel`: the words of its names, "gemm" in
  // linear/gemm_sm90.cuh and linear_gemm_sm90().
  LinearWgmmaFamily(std::string_view name, std::string kernel, const GemmSm90& fixed,
                    Tunables<GemmSm90> tunables)
      : GemmFamily(name, linear_families),
        kernel_(std::move(kernel)),
        fixed_(fixed),
        tunables_(std::move(tunables)) {}

  const Tunables<GemmSm90>& members() const { return tunables_; }
  // The facts that no config changes.
  GemmSm90 facts(const LinearProblem& problem) const;
  // Roughly how long a tile's kernel takes: ranks of both families compare.
  static double clocks(const LinearProblem& problem, const GemmSm90& tile,
                       const DeviceInfo& device);

 private:
  std::string kernel_;
  GemmSm90 fixed_;
  Tunables<GemmSm90> tunables_;
};

class LinearSm90 final : public LinearWgmmaFamily {
 public:
  LinearSm90();
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  GemmBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), GemmSm90::kDepth};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
