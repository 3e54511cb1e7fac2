// generator/group_norm/grid.cpp -- Group norms in turns by all CTAs at once: their rules.
// SPDX-License-Identifier: Apache-2.0
#include "core/checked.h"
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::int64_t kClusterCtas = 8, kWholeNumbers = 65536;  // that read a group once

using Rule = std::optional<std::string>;

// Groups that neither a cluster (NCHW) nor a CTA's registers (NHWC) hold.
Rule check_group(const GroupNormProblem& p, const DeviceInfo& device) {
  const std::int64_t numbers = p.group_channels() * p.positions;
  const std::int64_t bytes = numbers * element_bytes(p.type);
  const bool is_small =
      p.nhwc ? numbers <= kWholeNumbers : bytes <= kClusterCtas * device.shared_per_block;
  if (is_small) return formatted("{} bytes of a group are read once by fewer CTAs", bytes);
  return std::nullopt;
}

// Halves of halves: moments are merged without divisions, and no thread looks for its vectors.
Rule check_tiling(const GroupNormProblem& p, const GroupNormTiling& t) {
  if (t.vector_bytes != 16 || t.slots != 1) {
    return formatted("vectors of {} bytes and {} groups", t.vector_bytes, t.slots);
  }
  const bool halves = is_power_of_two(t.threads) && is_power_of_two(t.chunks) &&
                      is_power_of_two(t.row_vectors / t.groups);
  if (!halves || !t.even || t.row_vectors > kWarp || kWarp % t.row_vectors != 0) {
    return formatted("{} threads, {} chunks, rows of {} vectors", t.threads, t.chunks,
                     t.row_vectors);
  }
  if (!p.nhwc && p.positions % (t.chunk_rows * t.vector) != 0) {
    return formatted("{} numbers of a chunk, {} of a channel", t.chunk_rows * t.vector,
                     p.positions);
  }
  return std::nullopt;
}

// One CTA on an SM, and more than half of the SMs busy; whole groups in a turn.
Rule check_ctas(const GroupNormProblem& p, const GroupNormTiling& t, std::int64_t sms) {
  const std::optional<std::int64_t> ctas = group_norm_grid_ctas(p, t);
  if (!ctas) {
    return formatted("{} parts of groups by {} turns", group_norm_tiles(p, t.groups) * t.chunks,
                     t.turns);
  }
  if (sms == 0 || (*ctas <= sms && 2 * *ctas > sms)) return std::nullopt;
  return formatted("{} CTAs, {} SMs", *ctas, sms);
}

Rule check_threads(const GroupNormTiling& t) {
  const bool busy = t.threads == 512 || t.threads == 1024;
  if (busy && t.pieces * t.threads == 2048) return std::nullopt;
  return formatted("{} threads, {} vectors to a piece", t.threads, t.pieces);
}

// Two turns on the chip, at most a quarter of the second in registers, and no more turns than that
// takes.
Rule check_room(const GroupNormTiling& t, std::int64_t shared) {
  if (t.grid_bytes() > shared) return formatted("{} bytes, {} there are", t.grid_bytes(), shared);
  if (4 * t.held > t.steps) return formatted("{} of {} vectors in registers", t.held, t.steps);
  const std::int64_t turn = t.steps * t.threads * t.vector_bytes, twice = 4 * turn - turn / 2;
  if (twice <= shared) return formatted("turns of {} bytes, twice as many fit", turn);
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> group_norm_grid_ctas(const GroupNormProblem& p,
                                                 const GroupNormTiling& t) {
  const std::int64_t all = group_norm_tiles(p, t.groups) * t.chunks, ctas = all / t.turns;
  if (all % t.turns != 0 || ctas % t.chunks != 0) return std::nullopt;
  // A CTA of NHWC keeps to its rows of images: a turn is one slice.
  if (p.nhwc && ctas != t.chunks) return std::nullopt;
  return ctas;
}

std::vector<Constraint> group_norm_grid_rules(const GroupNormProblem& problem,
                                              const DeviceInfo& device) {
  // Of grids alone, with what follows from the config.
  const auto of_grids = [problem](auto check) {
    return [problem, check](const Config& c) -> Rule {
      if (c.at("kTurns") == 1) return std::nullopt;
      return check(group_norm_tiling(problem, c));
    };
  };
  const std::vector<std::string> tiling = {"kTurns", "kChunks", "kGroups", "kThreads", "kPieces"};
  return {
      {"turns: compute capability 9.0 or later, groups that no other family reads once",
       [problem, device](const Config& c) -> Rule {
         if (c.at("kTurns") == 1) return std::nullopt;
         if (device.cc_major < 9) return formatted("{}.x is not tried", device.cc_major);
         return check_group(problem, device);
       },
       {"kTurns"}},
      {"turns: no clusters, an early start, and the result is not kept in L2",
       [](const Config& c) -> Rule {
         const bool fits =
             c.at("kCluster") == 0 && c.at("kEarlyStart") == 1 && c.at("kStreaming") != 0;
         if (c.at("kTurns") == 1 || fits) return std::nullopt;
         return formatted("kCluster={} kEarlyStart={} kStreaming={}", c.at("kCluster"),
                          c.at("kEarlyStart"), c.at("kStreaming"));
       },
       {"kTurns", "kCluster", "kEarlyStart", "kStreaming"}},
      {"turns: 16-byte vectors of one group, and threads, chunks and vectors that are powers of "
       "two",
       of_grids([problem](const GroupNormTiling& t) { return check_tiling(problem, t); }), tiling},
      {"turns: 512 threads with 4 vectors to a piece, or 1024 with 2", of_grids(check_threads),
       tiling},
      {"turns: of whole groups, a CTA for an SM, more than half of the SMs busy",
       of_grids([problem, sms = device.sm_count](const GroupNormTiling& t) {
         return check_ctas(problem, t, sms);
       }),
       tiling},
      {"turns: as few as leave room for two on the chip, at most a quarter of the second in "
       "registers",
       of_grids([shared = device.shared_per_block](const GroupNormTiling& t) {
         return check_room(t, shared);
       }),
       tiling},
  };
}

}  // namespace vitune
