// generator/attention_backward/sm80.h -- The family sm80 of attention's gradients, and what follows
// from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/geometry.h"
#include "templates/attention_backward/geometry_dbias.cuh"
#include "templates/attention_backward/geometry_sm80.cuh"

namespace vitune {

// Its kernels' geometry, and the tunables of dbias, 0 where it is not asked for.
struct AttentionBackwardSm80Shape : AttentionBackwardSm80 {
  int dbias_keys = 0, dbias_stages = 0;

  explicit AttentionBackwardSm80Shape(const AttentionBackwardProblem& problem);  // facts alone
  AttentionBackwardSm80Shape(const AttentionBackwardProblem& problem, const Config& config);

  AttentionBackwardDbias dbias() const { return {dbias_keys, dbias_stages, head_dim}; }
};

class AttentionBackwardSm80Family final : public GemmFamily {
 public:
  AttentionBackwardSm80Family() : GemmFamily("sm80", attention_backward_families) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string templates() const override;
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  GemmBlock block(const Config& config) const override {
    return {16 * config.at("kDqWarps"), config.at("kDqKeys"), 16};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
