// generator/group_norm/clusters.cpp -- The family cluster: a group's chunks are a cluster's CTAs,
// which read it once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/format.h"
#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

// Unrolled passes over a thread's pieces, and vectors that a thread can have under way.
constexpr std::int64_t kMostPieces = 8, kMostThreadBytes = 512;

using Rule = std::optional<std::string>;

Rule check_pieces(const GroupNormTiling& t) {
  if (t.vector_bytes < 4) return formatted("{} bytes, asynchronous copies have 4", t.vector_bytes);
  const std::int64_t bytes = t.steps * t.vector_bytes;
  if (t.steps <= kMostPieces * t.pieces && bytes <= kMostThreadBytes) return std::nullopt;
  return formatted("{} bytes of a thread, {} vectors to a piece", bytes, t.pieces);
}

class Clusters final : public GroupNormFamily {
 public:
  std::string_view name() const override { return "cluster"; }
  bool owns(const Config& config) const override {
    return config.find("kCluster").value_or(0) != 0;
  }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    if (device.cc_major < 9) return formatted("{}.x has no clusters", device.cc_major);
    if (group_norm_of(problem).nhwc) return std::string("NHWC");
    return std::nullopt;
  }
  // Every device with clusters has room for 8 CTAs. A group is read once, past L2's policies.
  std::vector<Parameter> parameters(const Problem& problem) const override {
    return with_values(
        GroupNormFamily::parameters(problem),
        {{"kCluster", {1}},
         {"kChunks", {2, 4, 8}},
         {"kThreads", {64, 96, 128, 160, 192, 256, 320, 384, 480, 512, 640, 768, 960, 1024}},
         {"kPieces", {1, 2, 4, 8}},
         {"kStreaming", {0, 1}},
         {"kTurns", {1}}});
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const GroupNormTiling t = group_norm_tiling(group_norm_of(problem), config);
    return {{"vitune_group_norm_cluster", static_cast<int>(t.threads), t.cluster_bytes()}};
  }

 protected:
  std::int64_t wanted_ctas(const GroupNormTiling& t) const override {
    const std::int64_t most = std::max<std::int64_t>(kCtaShared / t.cluster_bytes(), 1);
    return std::min(GroupNormFamily::wanted_ctas(t), most);
  }

 private:
  std::string_view template_name() const override { return "clusters"; }
  std::string attributes(const GroupNormTiling& t) const override {
    return formatted("__cluster_dims__({}, 1, 1) ", t.chunks);
  }
};

std::vector<Constraint> Clusters::rules(const Problem& asked, const DeviceInfo& device) const {
  const GroupNormProblem& problem = group_norm_of(asked);
  std::vector<Constraint> rules = GroupNormFamily::rules(asked, device);
  rules.push_back(group_norm_tiling_rule("clusters: at most 512 bytes and 8 pieces of each thread",
                                         problem, check_pieces));
  rules.push_back(group_norm_tiling_rule(
      "clusters: a chunk is held in shared memory", problem,
      [shared = device.shared_per_block](const GroupNormTiling& t) -> Rule {
        if (t.cluster_bytes() <= shared) return std::nullopt;
        return formatted("{} bytes, {} there are", t.cluster_bytes(), shared);
      }));
  return rules;
}

// Pairs alone: of larger clusters none was faster.
std::optional<double> Clusters::rank(const Problem& problem, const Config& config,
                                     const DeviceInfo& device) const {
  constexpr double kExchange = 1;
  if (config.at("kChunks") != 2 || config.at("kEarlyStart") != 1 || config.at("kStreaming") != 0) {
    return std::nullopt;
  }
  const GroupNormProblem& p = group_norm_of(problem);
  return group_norm_steps(p, group_norm_tiling(p, config), device, 512, 128) + kExchange;
}

}  // namespace

const Family& group_norm_clusters() {
  static const Clusters instance;
  return instance;
}

}  // namespace vitune
