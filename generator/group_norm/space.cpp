// generator/group_norm/space.cpp -- Tunables of group norms and the rules of their tiles, for all
// families.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/checked.h"
#include "core/format.h"
#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostValues = 64, kMostCtas = 2147483647;
constexpr std::int64_t kCtasOfAnSm = 16, kLeastChunk = 4096;
constexpr std::int64_t kThreads[] = {32,  64,  96,  128, 160, 192, 256, 320,
                                     384, 480, 512, 640, 768, 960, 1024};

using Rule = std::optional<std::string>;

// NCHW: groups lie one after the other, of all images. NHWC: those of an image lie side by side.
std::vector<std::int64_t> group_counts(const GroupNormProblem& p) {
  if (!p.nhwc) return {1, 2, 4, 8, 16, 32};
  std::vector<std::int64_t> divisors;
  for (std::int64_t i = 1; i <= std::min<std::int64_t>(p.groups, 1024); ++i) {
    if (p.groups % i == 0) divisors.push_back(i);
  }
  return divisors;
}

Rule check_threads(const GroupNormTiling& t) {
  const bool even = t.busy == t.tile_threads && t.chunk_vectors() % t.busy == 0;
  if (!is_power_of_two(t.threads) && !even) {
    return formatted("{} threads for {} vectors", t.threads, t.chunk_vectors());
  }
  if (t.tile_threads % kWarp == 0) return std::nullopt;
  const bool part = t.tile_threads >= 4 && kWarp % t.tile_threads == 0;
  if (part && t.threads % t.groups == 0) return std::nullopt;
  return formatted("{} threads for {} groups", t.threads, t.groups);
}

Rule check_columns(const GroupNormTiling& t) {
  if (!t.sliced) return std::nullopt;
  if (t.threads < t.row_vectors) {
    return formatted("{} threads for {} columns", t.threads, t.row_vectors);
  }
  const std::int64_t idle = t.threads - t.busy;
  if (16 * idle > t.threads) return formatted("{} of {} threads are idle", idle, t.threads);
  return std::nullopt;
}

Rule check_registers(const GroupNormTiling& t) {
  const std::int64_t values = t.pieces * t.vector;
  if (values <= kMostValues && t.threads * t.least_registers() <= kSmRegisters) {
    return std::nullopt;
  }
  return formatted("{} threads with {} values", t.threads, values);
}

// Chunks: full rounds of reads for all threads. Whole groups: half as many threads would not do.
Rule check_work(const GroupNormTiling& t) {
  if (t.chunks > 1) {
    if ((t.chunks - 1) * t.chunk_rows >= t.rows) return formatted("{} rows", t.rows);
    const std::int64_t elements = t.chunk_vectors() * t.vector;
    if (elements < kLeastChunk) return formatted("{} elements of a chunk", elements);
    const bool full = t.pieces == 1 && !t.cluster ? t.steps == 1 : t.steps >= t.pieces;
    if (full && t.chunk_vectors() >= t.busy) return std::nullopt;
    return formatted("{} vectors of a chunk for {} threads", t.chunk_vectors(), t.threads);
  }
  const bool smallest = t.tile_threads <= std::max(kWarp, t.sliced ? t.row_vectors : 0);
  if (smallest || 2 * t.chunk_vectors() > t.busy) return std::nullopt;
  return formatted("{} threads for {} vectors", t.tile_threads, t.chunk_vectors());
}

Rule check_family(const GroupNormProblem& p, const Config& c) {
  const bool whole = c.at("kChunks") == 1;
  if (whole != (c.at("kPieces") == 0)) {
    return formatted("{} chunks, {} pieces", c.at("kChunks"), c.at("kPieces"));
  }
  if (!p.nhwc && c.at("kGroups") >= 2 * p.images * p.groups) {
    return formatted("{} groups of {}", c.at("kGroups"), p.images * p.groups);
  }
  if (!whole && !p.nhwc && c.at("kGroups") > 1) {
    return formatted("{} chunks of {} groups", c.at("kChunks"), c.at("kGroups"));
  }
  return std::nullopt;
}

Rule check_tiling(const GroupNormTiling& t) {
  for (const auto check : {check_threads, check_columns, check_work, check_registers}) {
    if (auto why = check(t)) return why;
  }
  return std::nullopt;
}

// The widest accesses that some config has, whatever its number of chunks.
std::int64_t widest_of_families(const GroupNormProblem& p) {
  std::int64_t widest = 0;
  for (const char* const family :
       {"kChunks=1 kPieces=0", "kChunks=2 kPieces=1", "kChunks=2 kPieces=2"}) {
    Config config = Config::parse(family);
    for (const std::int64_t groups : group_counts(p)) {
      config.set("kGroups", groups);
      if (check_family(p, config)) continue;
      for (const std::int64_t threads : kThreads) {
        config.set("kThreads", threads);
        const GroupNormTiling t = group_norm_tiling(p, config);
        if (t.vector > widest && !check_tiling(t)) widest = t.vector;
      }
    }
  }
  return widest;
}

// Unlimited for a device that is known by its architecture alone.
std::int64_t enough_ctas(const DeviceInfo& device) {
  return device.sm_count > 0 ? kCtasOfAnSm * device.sm_count : kMostCtas;
}

}  // namespace

std::vector<Parameter> GroupNormFamily::parameters(const Problem& problem) const {
  return {
      {"kCluster",
       {0, 1},
       "1: the CTAs that a group is spread over are a cluster and read it once",
       true},
      {"kChunks",
       {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
       "CTAs that a group is spread over, in two kernels, a cluster, or waves of all CTAs; 1: "
       "whole groups, in one",
       false,
       true},
      {"kGroups", group_counts(group_norm_of(problem)), "groups that a CTA works on", false, true},
      {"kThreads", {std::begin(kThreads), std::end(kThreads)}, "threads of a CTA", false, true},
      {"kPieces",
       {0, 1, 2, 4, 8},
       "vectors of a chunk that a thread reads at once; 0: all of a whole group's",
       false,
       true},
      {"kEarlyStart", {0, 1}, "CTAs may come onto the device while earlier grids end", false, true},
      {"kStreaming",
       {0, 1, 2},
       "L2 need not keep: nothing, the result, what is read for the last time too",
       true,
       true},
      {"kTurns",
       {1, 2, 4, 8, 16, 32},
       "waves of whole groups in which all CTAs of the device, at once, go through the tensor and "
       "read it once; 1: a group is read twice, or by a CTA or a cluster"},
  };
}

std::vector<Constraint> GroupNormFamily::rules(const Problem& asked,
                                               const DeviceInfo& device) const {
  const GroupNormProblem& problem = group_norm_of(asked);
  const auto tiled = [&](std::string rule, auto check) {
    return group_norm_tiling_rule(std::move(rule), problem, check);
  };
  return {
      {"families: whole groups, as many as there are, are read at once; chunks, of one group in "
       "NCHW, in pieces",
       [problem](const Config& c) { return check_family(problem, c); },
       {"kChunks", "kGroups", "kPieces"}},
      {"grid: no more chunks than give each SM 16 CTAs, and at most 2^31 - 1 CTAs",
       [problem, enough = enough_ctas(device)](const Config& c) -> Rule {
         const std::int64_t chunks = c.at("kChunks");
         const std::int64_t ctas = group_norm_tiles(problem, c.at("kGroups")) * chunks;
         const bool is_idle = chunks > 2 && ctas >= 2 * enough;
         if (ctas <= kMostCtas && !is_idle) return std::nullopt;
         return formatted("{} CTAs", ctas);
       },
       {"kChunks", "kGroups"}},
      tiled("accesses: as wide as some number of groups allows",
            [widest = widest_of_families(problem)](const GroupNormTiling& t) -> Rule {
              if (t.vector == widest) return std::nullopt;
              return formatted("{} elements, not {}", t.vector, widest);
            }),
      tiled("threads: whole or equal parts of warps for each group; a power of two, or none idle",
            check_threads),
      tiled("slices: a thread for each column, few idle", check_columns),
      tiled("work: each thread has vectors, and a chunk 4096 elements", check_work),
      tiled("pieces: whole ones, where no thread looks whether its vectors are there",
            [](const GroupNormTiling& t) -> Rule {
              if (!t.even || t.pieces == 0 || t.steps % t.pieces == 0) return std::nullopt;
              return formatted("{} vectors of a thread, {} to a piece", t.steps, t.pieces);
            }),
      tiled("registers: at most 64 values of a thread, and 65536 registers of a CTA",
            check_registers),
  };
}

}  // namespace vitune
