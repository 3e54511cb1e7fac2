// generator/group_norm/groups.cpp -- The first family of group norms: whole groups in one kernel,
// or chunks of them in two and memory between.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

class Groups final : public GroupNormFamily {
 public:
  std::string_view name() const override { return "group_norm"; }
  bool owns(const Config& config) const override {
    return config.find("kCluster").value_or(0) == 0 && config.find("kTurns").value_or(1) == 1;
  }
  std::vector<Parameter> parameters(const Problem& problem) const override {
    return with_values(GroupNormFamily::parameters(problem), {{"kCluster", {0}}, {"kTurns", {1}}});
  }
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;

 private:
  std::string_view template_name() const override { return "groups"; }
};

std::optional<double> Groups::rank(const Problem& problem, const Config& config,
                                   const DeviceInfo& device) const {
  const std::int64_t starts_early = device.cc_major >= 9 ? 1 : 0;
  if (config.at("kEarlyStart") != starts_early || config.at("kStreaming") != 0) return std::nullopt;
  for (const KernelNeeds& needs : kernels(problem, config)) {
    if (needs.shared_bytes > device.shared_per_block) return std::nullopt;
  }
  const GroupNormProblem& p = group_norm_of(problem);
  const GroupNormTiling t = group_norm_tiling(p, config);
  if (t.chunks == 1) return group_norm_steps(p, t, device, 512, 128);
  // A second kernel and a second pass, which have more threads to wait for memory.
  return 1.5 * group_norm_steps(p, t, device, 1024, 512) + 6;
}

std::vector<KernelNeeds> Groups::kernels(const Problem& problem, const Config& config) const {
  const GroupNormTiling t = group_norm_tiling(group_norm_of(problem), config);
  const int threads = static_cast<int>(t.threads);
  if (t.chunks == 1) {
    return {{"vitune_group_norm", threads, t.moment_bytes() + (t.sliced ? t.scale_bytes() : 0)}};
  }
  return {{"vitune_group_norm_statistics", threads, t.moment_bytes()},
          {"vitune_group_norm_apply", threads, t.scale_bytes()}};
}

}  // namespace

const Family& group_norm_groups() {
  static const Groups instance;
  return instance;
}

}  // namespace vitune
