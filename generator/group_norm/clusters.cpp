// generator/group_norm/clusters.cpp -- Group norms by clusters of CTAs: rules of their tunables.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

// Unrolled passes over a thread's pieces, and vectors that a thread can have under way.
constexpr std::int64_t kMostPieces = 8, kMostThreadBytes = 512, kLeastThreads = 64;
constexpr std::int64_t kMostCtas = 8;  // that every device with clusters has room for

using Rule = std::optional<std::string>;

Rule check_pieces(const GroupNormTiling& t) {
  if (t.threads < kLeastThreads) return formatted("{} threads", t.threads);
  if (t.vector_bytes < 4) return formatted("{} bytes, asynchronous copies have 4", t.vector_bytes);
  const std::int64_t bytes = t.steps * t.vector_bytes;
  if (t.steps <= kMostPieces * t.pieces && bytes <= kMostThreadBytes) return std::nullopt;
  return formatted("{} bytes of a thread, {} vectors to a piece", bytes, t.pieces);
}

}  // namespace

std::vector<Constraint> group_norm_cluster_rules(const GroupNormProblem& problem,
                                                 const DeviceInfo& device) {
  // Of clusters alone, with what follows from the config.
  const auto of_clusters = [problem](auto check) {
    return [problem, check](const Config& c) -> Rule {
      if (c.at("kCluster") == 0) return std::nullopt;
      return check(group_norm_tiling(problem, c));
    };
  };
  const std::vector<std::string> tiling = {"kCluster", "kChunks", "kGroups", "kThreads", "kPieces"};
  return {
      {"clusters: compute capability 9.0 or later, NCHW, 2 to 8 CTAs",
       [major = device.cc_major, nhwc = problem.nhwc](const Config& c) -> Rule {
         if (c.at("kCluster") == 0) return std::nullopt;
         if (major < 9) return formatted("{}.x has none", major);
         if (nhwc) return std::string("NHWC");
         const std::int64_t ctas = c.at("kChunks");
         return ctas > 1 && ctas <= kMostCtas ? Rule() : formatted("a cluster of {} CTAs", ctas);
       },
       {"kCluster", "kChunks"}},
      {"clusters copy past L2's policies",
       [](const Config& c) -> Rule {
         if (c.at("kCluster") == 0 || c.at("kStreaming") < 2) return std::nullopt;
         return std::string("a group is read once");
       },
       {"kCluster", "kStreaming"}},
      {"clusters: at least 64 threads, and at most 512 bytes and 8 pieces of each",
       of_clusters(check_pieces), tiling},
      {"clusters: a chunk is held in shared memory",
       of_clusters([shared = device.shared_per_block](const GroupNormTiling& t) -> Rule {
         if (t.cluster_bytes() <= shared) return std::nullopt;
         return formatted("{} bytes, {} there are", t.cluster_bytes(), shared);
       }),
       tiling},
  };
}

}  // namespace vitune
