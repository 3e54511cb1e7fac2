// generator/attention_backward/sm90_bias.h -- The family sm90_bias of attention's gradients, and
// what follows from its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/geometry.h"
#include "templates/attention_backward/geometry_sm90.cuh"
#include "templates/attention_backward/geometry_sm90_bias.cuh"

namespace vitune {

// Its kernels' geometry: the facts alone, and with a config's tunables.
AttentionBackwardSm90Bias attention_backward_sm90_bias_facts(
    const AttentionBackwardProblem& problem);
AttentionBackwardSm90Bias attention_backward_sm90_bias_shape(
    const AttentionBackwardProblem& problem, const Config& config);

// Biases of a problem, each shared by equally many scores.
std::int64_t bias_entries(const AttentionBackwardProblem& problem);
// Units of CTAs (templates/attention_backward/bias_items_sm90.cuh) of `blocks` CTAs each, of which
// so many fit on each SM at once: as many as run at once, but each with something to do.
std::int64_t score_units(const AttentionBackwardProblem& problem, std::int64_t blocks, int resident,
                         const DeviceInfo& device);

class AttentionBackwardSm90BiasFamily final : public GemmFamily {
 public:
  AttentionBackwardSm90BiasFamily() : GemmFamily("sm90_bias", attention_backward_families) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string templates() const override;
  std::string source(const Problem& problem, const Config& config) const override;
  bool is_of_one_architecture() const override { return true; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  // Of a wide tile of dbias some sums are put aside once for each batch entry, between thousands of
  // instructions; that wins or loses by measurement.
  int harmless_spill_bytes() const override { return 128; }
  bool reads_tensor_maps(const Config&) const override { return true; }
  GemmBlock block(const Config& config) const override {
    return {AttentionBackwardSm90Bias::kGroupRows * config.at("kGroups"), config.at("kKeyStep"),
            16};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
