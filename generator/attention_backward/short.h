// generator/attention_backward/short.h -- The family sm80_short of attention's gradients, and what
// follows from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/geometry.h"
#include "templates/attention_backward/geometry_short.cuh"

namespace vitune {

// Its kernel's geometry: the facts alone, and with a config's tunables.
AttentionBackwardShort attention_backward_short_facts(const AttentionBackwardProblem& problem);
AttentionBackwardShort attention_backward_short_shape(const AttentionBackwardProblem& problem,
                                                      const Config& config);

class AttentionBackwardShortFamily final : public GemmFamily {
 public:
  AttentionBackwardShortFamily() : GemmFamily("sm80_short", attention_backward_families) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  int harmless_spill_bytes() const override { return 64; }
  std::string templates() const override;
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  GemmBlock block(const Config& config) const override {
    return {16, 16 * config.at("kWarps"), 16};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
