// generator/attention_backward/sm90_one_pass.h -- The family sm90_one_pass of attention's
// gradients, and what follows from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/geometry.h"
#include "templates/attention_backward/geometry_sm90_one_pass.cuh"

namespace vitune {

// Its kernel's geometry: the facts alone, and with a config's tunables.
AttentionBackwardOnePass attention_backward_one_pass_facts(const AttentionBackwardProblem& problem);
AttentionBackwardOnePass attention_backward_one_pass_shape(const AttentionBackwardProblem& problem,
                                                           const Config& config);

class AttentionBackwardOnePassFamily final : public GemmFamily {
 public:
  AttentionBackwardOnePassFamily() : GemmFamily("sm90_one_pass", attention_backward_families) {}
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
  // Warps that sum deltas spill where it does not matter, and those that compute spill addresses
  // that a step needs once; which of two configs is faster is for a measurement to say.
  int harmless_spill_bytes() const override { return 640; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool reads_tensor_maps(const Config&) const override { return true; }
  GemmBlock block(const Config& config) const override {
    return {AttentionBackwardOnePass::kBlockKeys, config.at("kQueryStep"), 16};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
