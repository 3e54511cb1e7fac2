// generator/group_norm/clusters.cpp -- Group norms by clusters of CTAs: rules of their tunables.
// SPDX-License-Identifier: Apache-2.0
#include "core/checked.h"
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

// Unrolled passes over a thread's pieces, and vectors that a thread can have under way.
constexpr std::int64_t kMostPieces = 8, kMostThreadBytes = 512, kLeastThreads = 64;

using Rule = std::optional<std::string>;

bool is_cluster(const Config& c) { return c.at("kCluster") != 0; }

std::int64_t sms_of(const DeviceInfo& device) {
  constexpr std::int64_t kUnknown = 132;
  return device.sm_count > 0 ? device.sm_count : kUnknown;
}

Rule check_pieces(const GroupNormTiling& t) {
  if (t.threads < kLeastThreads) return formatted("{} threads", t.threads);
  if (t.vector_bytes < 4) return formatted("{} bytes, asynchronous copies have 4", t.vector_bytes);
  if (t.busy % t.row_vectors != 0) {
    return formatted("{} threads for rows of {} vectors", t.busy, t.row_vectors);
  }
  const std::int64_t bytes = t.steps * t.vector_bytes;
  if (t.tile_pieces <= kMostPieces && bytes <= kMostThreadBytes) return std::nullopt;
  return formatted("{} bytes in {} pieces of a thread", bytes, t.tile_pieces);
}

// Other clusters than those with a turn less.
Rule check_turns(const GroupNormProblem& p, const GroupNormTiling& t, std::int64_t sms) {
  if (t.turns == 1) return std::nullopt;
  const std::int64_t tiles = group_norm_tiles(p, t.groups), clusters = group_norm_clusters(p, t);
  const bool needs_turns = tiles * t.chunks > sms && 2 * clusters * t.chunks > sms;
  if (needs_turns && ceil_div(tiles, clusters) == t.turns) return std::nullopt;
  return formatted("{} clusters for {} tiles", clusters, tiles);
}

Rule check_shared(const GroupNormTiling& t, std::int64_t shared) {
  if (t.cluster_bytes(t.ahead) > shared) {
    return formatted("{} bytes, {} there are", t.cluster_bytes(t.ahead), shared);
  }
  std::int64_t most = t.turns > 1 ? t.tile_pieces : 0;
  while (most > 0 && t.cluster_bytes(most) > shared) --most;
  if (t.ahead <= most && 2 * t.ahead >= most) return std::nullopt;
  return formatted("{} pieces ahead of {}", t.ahead, most);
}

}  // namespace

std::vector<Constraint> group_norm_cluster_rules(const GroupNormProblem& problem,
                                                 const DeviceInfo& device) {
  const std::int64_t sms = sms_of(device), shared = device.shared_per_block;
  // Of clusters alone, with what follows from the config.
  const auto of_clusters = [problem](auto check) {
    return [problem, check](const Config& c) -> Rule {
      if (!is_cluster(c)) return std::nullopt;
      return check(group_norm_tiling(problem, c));
    };
  };
  const std::vector<std::string> tiling = {"kCluster", "kChunks", "kGroups", "kThreads", "kPieces"};
  std::vector<std::string> with_turns = tiling, all = tiling;
  with_turns.emplace_back("kTurns");
  all.insert(all.end(), {"kTurns", "kAhead"});
  return {
      {"clusters: compute capability 9.0 or later",
       [major = device.cc_major](const Config& c) -> Rule {
         if (!is_cluster(c) || major >= 9) return std::nullopt;
         return formatted("{}.x has none", major);
       },
       {"kCluster"}},
      {"turns and pieces ahead: of clusters",
       [](const Config& c) -> Rule {
         if (is_cluster(c) || (c.at("kTurns") == 1 && c.at("kAhead") == 0)) return std::nullopt;
         return formatted("{} turns, {} pieces", c.at("kTurns"), c.at("kAhead"));
       },
       {"kCluster", "kTurns", "kAhead"}},
      {"clusters copy past L2's policies",
       [](const Config& c) -> Rule {
         if (!is_cluster(c) || c.at("kStreaming") < 2) return std::nullopt;
         return std::string("a tile is read once");
       },
       {"kCluster", "kStreaming"}},
      {"clusters: 64 threads, whole rows for them, at most 512 bytes and 8 pieces of each",
       of_clusters(check_pieces), tiling},
      {"turns: where the device lacks SMs for all tiles at once, on half of them or more",
       of_clusters(
           [problem, sms](const GroupNormTiling& t) { return check_turns(problem, t, sms); }),
       with_turns},
      {"shared memory: a chunk, and of those to come what fits, or half of that",
       of_clusters([shared](const GroupNormTiling& t) { return check_shared(t, shared); }), all},
  };
}

}  // namespace vitune
