// generator/linear/sm90.h -- The family sm90, and what follows from its configs.
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
#include "generator/launch_plan.h"
#include "generator/linear/family.h"
#include "generator/linear/problem.h"

namespace vitune {

// As templates/linear/config_sm90.cuh has it.
class LinearSm90Shape {
 public:
  LinearSm90Shape(const LinearProblem& problem, const Config& config);

  enum Schedule : std::int64_t { kShared = 0, kPingPong = 1 };
  static constexpr std::int64_t kBlockK = 64;

  std::int64_t block_m, block_n, stages, groups, schedule, pair, lead;
  bool has_wide_panels;
  std::int64_t shared_after = 0;  // bytes of shared memory that others need behind these

  std::int64_t threads() const { return 128 * (groups + 1); }
  std::int64_t cluster() const { return pair > 0 ? 2 : 1; }
  std::int64_t group_rows() const { return schedule == kPingPong ? block_m : block_m / groups; }
  std::int64_t sums() const { return group_rows() / 64 * block_n / 2; }  // of a thread
  std::int64_t store_columns() const;
  std::int64_t store_row_bytes() const;
  std::int64_t stores() const { return group_rows() / 64 * (block_n / store_columns()); }
  // In which a warp stages what it stores: two, and where residuals come there as many as fit.
  std::int64_t store_buffers() const;
  std::int64_t stage_bytes() const { return (block_m + block_n) * kBlockK * 2; }
  std::int64_t shared_bytes() const { return bytes_with(store_buffers()); }
  std::int64_t most_stages(std::int64_t shared) const;
  // Panels of a residual that a slot of the ring holds.
  std::int64_t slot_panels() const { return stage_bytes() / (block_m * store_row_bytes()); }
  std::int64_t units() const;  // tiles or pairs of tiles
  std::int64_t steps() const;  // of all of k

  std::vector<TensorMapSlot> maps() const;
  std::int64_t map_bytes() const;

 private:
  static constexpr std::int64_t kSharedBytes = 232448;  // that a CTA can have, on 9.0

  bool copies_residual() const;  // or pre
  bool stages_residual() const;  // rather than by the ring
  std::int64_t least_store_buffers() const;
  std::int64_t buffer_bytes() const;
  std::int64_t second_bytes() const;
  std::int64_t bytes_with(std::int64_t buffers) const;
  std::int64_t other_bytes(std::int64_t buffers) const;  // beside the ring and its barriers

  const LinearProblem& problem_;
};

// An H200's where the device does not say.
std::int64_t linear_sm90_sms(const DeviceInfo& device);
// Why tiles of `block` for `extent` rows or columns would be mostly empty, or nothing.
std::optional<std::string> check_linear_block(std::int64_t block, std::int64_t extent);

// Members of a generated Config: the facts of a problem.
std::string linear_sm90_facts_text(const LinearProblem& problem);
// The name of the kernels' type of these maps.
std::string_view linear_sm90_maps_type(const LinearProblem& problem);
// Why a tile of so many columns cannot take w as [k, n], or nothing.
std::optional<std::string> check_linear_panels(const LinearProblem& problem, std::int64_t columns);
// Why a tile of so many columns cannot write moments of its rows, or nothing.
std::optional<std::string> check_linear_moments(const LinearProblem& problem, std::int64_t columns);

// Why the family cannot answer the problem on the device, or nothing.
std::optional<std::string> linear_sm90_refusal(const LinearProblem& problem,
                                               const DeviceInfo& device);

class LinearSm90 final : public LinearFamily {
 public:
  std::string_view name() const override { return "sm90"; }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    return linear_sm90_refusal(linear_of(problem), device);
  }
  std::vector<Parameter> tunables() const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string templates() const override { return "#include \"linear/gemm_sm90.cuh\"\n"; }
  std::string source(const Problem& problem, const Config& config) const override;
  bool is_of_one_architecture() const override { return true; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  int harmless_spill_bytes() const override { return 16; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool reads_tensor_maps(const Config&) const override { return true; }
  LinearBlock block(const Config& config) const override {
    return {config.at("kBlockM"), config.at("kBlockN"), LinearSm90Shape::kBlockK};
  }

 private:
  ConfigWords own_words(const Config& config) const override;
};

}  // namespace vitune
