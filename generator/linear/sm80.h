// generator/linear/sm80.h -- The family sm80, and what follows from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/geometry.h"
#include "generator/linear/family.h"
#include "templates/linear/geometry_sm80.cuh"

namespace vitune {

// Its kernels' geometry, and what the launch knows.
struct LinearSm80Shape : GemmSm80 {
  int splits;  // parts of k, each with CTAs of its own; a second kernel adds them
  std::int64_t m, n, k;

  explicit LinearSm80Shape(const LinearProblem& problem);  // the facts alone
  LinearSm80Shape(const LinearProblem& problem, const Config& config);

  std::int64_t tiles() const;          // CTAs of one split
  std::int64_t split_columns() const;  // of x in each split: whole steps
};

class LinearSm80 final : public GemmFamily {
 public:
  LinearSm80() : GemmFamily("sm80", linear_families) {}
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
  GemmBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), config.at("kBlockK")};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
