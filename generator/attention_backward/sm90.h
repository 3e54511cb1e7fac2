// generator/attention_backward/sm90.h -- The family sm90 of attention's gradients, and what follows
// from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/geometry.h"
#include "templates/attention_backward/geometry_sm90.cuh"

namespace vitune {

// Its kernels' geometry: the facts alone, and with a config's tunables.
AttentionBackwardSm90 attention_backward_sm90_facts(const AttentionBackwardProblem& problem);
AttentionBackwardSm90 attention_backward_sm90_shape(const AttentionBackwardProblem& problem,
                                                    const Config& config);

class AttentionBackwardSm90Family final : public GemmFamily {
 public:
  AttentionBackwardSm90Family() : GemmFamily("sm90", attention_backward_families) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::string templates() const override;
  std::string source(const Problem& problem, const Config& config) const override;
  bool is_of_one_architecture() const override { return true; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool reads_tensor_maps(const Config&) const override { return true; }
  GemmBlock block(const Config& config) const override {
    return {AttentionBackwardSm90::kGroupRows * config.at("kGroups"), config.at("kKeyStep"), 16};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
