// generator/group_norm/grid.cpp -- Group norms by all CTAs of the device at once: rules of their
// tunables.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::int64_t kPieces = 2;  // vectors of a piece
// Of registers and shared memory that an SM has, the most are for data with so few threads.
constexpr std::int64_t kThreads = 512, kThreadsOfOddRows = 480;
constexpr std::int64_t kClusterCtas = 8, kWholeNumbers = 65536;  // that read a group once

using Rule = std::optional<std::string>;

// A thread's steps, as whole pieces.
std::int64_t steps_of(const GroupNormTiling& t) { return round_up(t.steps, kPieces); }

// Groups that neither a cluster (NCHW) nor a CTA's registers (NHWC) hold.
Rule check_group(const GroupNormProblem& p, const DeviceInfo& device) {
  const std::int64_t numbers = p.group_channels() * p.positions;
  const std::int64_t bytes = numbers * element_bytes(p.type);
  const bool is_small =
      p.nhwc ? numbers <= kWholeNumbers : bytes <= kClusterCtas * device.shared_per_block;
  if (is_small) return formatted("{} bytes of a group are read once by fewer CTAs", bytes);
  return std::nullopt;
}

Rule check_tiling(const GroupNormProblem& p, const GroupNormTiling& t) {
  if (t.pieces != kPieces) return formatted("{} vectors to a piece", t.pieces);
  if (t.vector_bytes != 16 || t.slots != 1) {
    return formatted("vectors of {} bytes and {} groups", t.vector_bytes, t.slots);
  }
  if (p.nhwc && t.groups != p.groups) return formatted("{} groups of {}", t.groups, p.groups);
  const bool odd = p.nhwc && kThreads % t.row_vectors != 0;
  if (t.threads == kThreads || (odd && t.threads == kThreadsOfOddRows)) return std::nullopt;
  return formatted("{} threads", t.threads);
}

// All CTAs at once, one on an SM, and more than half of the SMs busy.
Rule check_ctas(std::int64_t ctas, std::int64_t sms) {
  if (sms == 0 || (ctas <= sms && 2 * ctas > sms)) return std::nullopt;
  return formatted("{} CTAs, {} SMs", ctas, sms);
}

// As many vectors as there is room for stay in shared memory, and no more are read again.
Rule check_room(const GroupNormTiling& t, std::int64_t shared) {
  GroupNormTiling more = t;
  more.kept += kPieces;
  const std::int64_t steps = steps_of(t), again = steps - t.kept - t.held;
  if (t.grid_bytes() > shared) return formatted("{} bytes, {} there are", t.grid_bytes(), shared);
  if (t.kept < steps && more.grid_bytes() <= shared) return formatted("room for {}", more.kept);
  if (again >= 0 && again <= t.kept) return std::nullopt;
  return formatted("{} vectors of a thread, {} are read again", steps, again);
}

}  // namespace

std::vector<Constraint> group_norm_grid_rules(const GroupNormProblem& problem,
                                              const DeviceInfo& device) {
  // Of grids alone, with what follows from the config.
  const auto of_grids = [problem](auto check) {
    return [problem, check](const Config& c) -> Rule {
      if (c.at("kKept") == 0) return std::nullopt;
      return check(group_norm_tiling(problem, c));
    };
  };
  const std::vector<std::string> tiling = {"kKept", "kChunks", "kGroups", "kThreads", "kPieces"};
  std::vector<std::string> all = tiling;
  all.push_back("kHeld");
  return {
      {"grids at once: compute capability 9.0 or later, groups that no other family reads once",
       [problem, device](const Config& c) -> Rule {
         if (c.at("kKept") == 0) return std::nullopt;
         if (device.cc_major < 9) return formatted("{}.x is not tried", device.cc_major);
         return check_group(problem, device);
       },
       {"kKept"}},
      {"grids at once: no clusters, the result is not kept in L2",
       [](const Config& c) -> Rule {
         if (c.at("kKept") == 0 || (c.at("kCluster") == 0 && c.at("kStreaming") == 1)) return {};
         return formatted("kCluster={} kStreaming={}", c.at("kCluster"), c.at("kStreaming"));
       },
       {"kKept", "kCluster", "kStreaming"}},
      {"vectors in registers are a grid's",
       [](const Config& c) -> Rule {
         if (c.at("kKept") > 0 || c.at("kHeld") == 0) return std::nullopt;
         return formatted("{} of another family", c.at("kHeld"));
       },
       {"kKept", "kHeld"}},
      {"grids at once: 512 threads, or 480 where rows leave some idle; 16-byte vectors of one "
       "group, "
       "2 to a piece; all groups of NHWC",
       of_grids([problem](const GroupNormTiling& t) { return check_tiling(problem, t); }), tiling},
      {"grids at once: a CTA for an SM, more than half of the SMs busy",
       of_grids([problem, sms = device.sm_count](const GroupNormTiling& t) {
         return check_ctas(group_norm_tiles(problem, t.groups) * t.chunks, sms);
       }),
       tiling},
      {"grids at once: shared memory is full, and holds all that is read again",
       of_grids([shared = device.shared_per_block](const GroupNormTiling& t) {
         return check_room(t, shared);
       }),
       all},
  };
}

}  // namespace vitune
