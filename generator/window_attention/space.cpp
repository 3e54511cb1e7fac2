// generator/window_attention/space.cpp -- The window kernels' tunables, and good values without
// tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/fit.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

using Rule = std::optional<std::string>;

constexpr std::int64_t kMostWarps = 16, kMostStepKeys = 208, kSmRegisters = 65536;
constexpr std::int64_t kMostSmWarps = 64;
constexpr std::int64_t kMaxRegisters = 255;

// All keys in one step where they are few, and two to four or more equal steps.
std::vector<std::int64_t> step_widths(std::int64_t keys) {
  std::vector<std::int64_t> widths;
  for (std::int64_t steps = 1; steps <= 8; ++steps) {
    const std::int64_t width = round_up(ceil_div(keys, steps), steps == 1 ? 8 : 16);
    if (width > kMostStepKeys || (steps > 1 && width < 48)) continue;
    if (ceil_div(keys, width) == steps) widths.push_back(width);
  }
  std::ranges::sort(widths);
  return widths;
}

// Warps that share a window's 16-row tiles without one of them having fewer than it could.
std::vector<std::int64_t> warp_counts(std::int64_t keys) {
  std::vector<std::int64_t> counts;
  for (std::int64_t warps = 1; warps <= kMostWarps; ++warps) {
    for (const std::int64_t rows : {16, 32}) {
      const std::int64_t tiles = ceil_div(keys, rows);
      if (ceil_div(tiles, ceil_div(tiles, warps)) != warps) continue;
      counts.push_back(warps);
      break;
    }
  }
  return counts;
}

// Registers that a thread has at least: scores, output, bias, and addresses.
std::int64_t least_registers(const WindowAttentionProblem& p, const Config& c) {
  const std::int64_t width = std::min(c.at("kBlockN"), round_up(p.keys(), 8));
  const std::int64_t bias_words = !p.bias ? 0 : p.bias->type == ElementType::kFp32 ? 2 : 1;
  return c.at("kRowTiles") * (width / 2 + p.d / 2 + bias_words * width / 4) + 24;
}

Rule check_rows(const WindowAttentionProblem& p, const Config& c) {
  const std::int64_t tiles = ceil_div(p.keys(), 16 * c.at("kRowTiles"));
  const std::int64_t warps = c.at("kRowWarps");
  if (ceil_div(tiles, ceil_div(tiles, warps)) == warps) return std::nullopt;
  return formatted("{} warps for {} tiles of rows", warps, tiles);
}

Rule check_warps(const Config& c) {
  const std::int64_t warps = c.at("kHeadsPerCta") * c.at("kRowWarps");
  if (warps <= kMostWarps && warps * c.at("kMinCtas") <= kMostSmWarps) return std::nullopt;
  return formatted("{} warps", warps);
}

// Registers that a thread may have.
std::int64_t register_room(const Config& c) {
  const std::int64_t threads = 32 * c.at("kHeadsPerCta") * c.at("kRowWarps");
  return std::min(kSmRegisters / (threads * c.at("kMinCtas")) / 8 * 8, kMaxRegisters);
}

Rule check_registers(const WindowAttentionProblem& p, const Config& c) {
  const std::int64_t least = least_registers(p, c), room = register_room(c);
  if (least <= room) return std::nullopt;
  return formatted("{} registers, room for {}", least, room);
}

Rule check_bias(const WindowAttentionProblem& p, const Config& c) {
  if (c.at("kBiasInRegisters") == 0) return std::nullopt;
  const std::int64_t tiles = ceil_div(p.keys(), 16 * c.at("kRowTiles"));
  const bool fits = c.at("kBlockN") >= p.keys() && c.at("kRowWarps") == tiles;
  if (p.bias && c.at("kPersistent") != 0 && fits) return std::nullopt;
  return "nothing to keep, or nobody to keep it";
}

}  // namespace

ParameterSpace window_attention_space(const WindowAttentionProblem& problem,
                                      const DeviceInfo& device) {
  std::vector<Parameter> parameters = {
      {"kHeadsPerCta",
       {1, 2, 3, 4, 6, 8},
       "windows' heads that a CTA works on at once",
       false,
       true},
      {"kRowWarps", warp_counts(problem.keys()), "warps of each", false, true},
      {"kRowTiles", {1, 2}, "16-row tiles of a warp at once", false, true},
      {"kBlockN", step_widths(problem.keys()), "keys per step", false, true},
      {"kBuffers", {1, 2}, "2: the next one is copied while one is worked on", false, true},
      {"kMinCtas",
       {1, 2, 3, 4, 5, 6, 8, 10, 12, 16},
       "CTAs per SM that the compiler leaves room for",
       false,
       true},
      {"kPersistent", {0, 1}, "1: CTAs walk over many windows", false, true},
      {"kBiasInRegisters", {0, 1}, "1: a bias is kept for the next window", false, true},
  };
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  std::vector<Constraint> rules = {
      {"rows: no warp that the others could do without",
       [problem](const Config& c) { return check_rows(problem, c); },
       {"kRowWarps", "kRowTiles"}},
      {"warps: at most 16 of a CTA and 64 of an SM",
       check_warps,
       {"kHeadsPerCta", "kRowWarps", "kMinCtas"}},
      {"registers: scores, output and bias of a thread fit",
       [problem](const Config& c) { return check_registers(problem, c); },
       {"kHeadsPerCta", "kRowWarps", "kRowTiles", "kBlockN", "kMinCtas"}},
      {"shared memory: all rows of the windows that a CTA works on, and of kMinCtas on an SM",
       [problem, shared, sm_shared](const Config& c) -> Rule {
         const std::int64_t bytes = window_tiling(problem, c).shared_bytes();
         if (bytes <= shared &&
             (bytes + 1024) * c.at("kMinCtas") <= std::max(sm_shared, shared + 1024)) {
           return std::nullopt;
         }
         return formatted("{} bytes", bytes);
       },
       {"kHeadsPerCta", "kRowWarps", "kRowTiles", "kBlockN", "kBuffers", "kMinCtas"}},
      {"buffers: two for CTAs that walk",
       [](const Config& c) -> Rule {
         if (c.at("kBuffers") == 1 || c.at("kPersistent") == 1) return std::nullopt;
         return "the only window of a CTA has no next one";
       },
       {"kBuffers", "kPersistent"}},
      {"bias: kept by warps of one tile of rows that walk, all keys in one step",
       [problem](const Config& c) { return check_bias(problem, c); },
       {"kRowWarps", "kRowTiles", "kBlockN", "kPersistent", "kBiasInRegisters"}},
  };
  return {std::move(parameters), std::move(rules)};
}

std::vector<Config> window_attention_defaults(const WindowAttentionProblem& problem,
                                              const DeviceInfo&, const ParameterSpace& space) {
  // A tile of rows for each warp, all keys in one step, sixteen warps on an SM, no spills: as near
  // as the space comes to that.
  constexpr std::int64_t kUsualRegisters = 32;  // beside the least
  return cheapest(space.enumerate(), 2, [&](const Config& config) -> std::optional<double> {
    const WindowTiling t = window_tiling(problem, config);
    const double warps = static_cast<double>(t.heads_per_cta * t.row_warps);
    const double resident = warps * static_cast<double>(config.at("kMinCtas"));
    const bool keeps = config.at("kBiasInRegisters") != 0;
    const bool may_keep = problem.bias && problem.bias->windows == 1;
    double cost = static_cast<double>(t.steps + t.row_tiles + ceil_div(t.tiles, t.row_warps));
    cost += std::abs(warps - 4) / 8 + std::abs(resident - 16) / 16;
    cost += config.at("kPersistent") == 0 ? 0.25 : 0;
    cost += config.at("kBuffers") == 2 ? 0.25 : 0;
    cost += keeps != may_keep ? 0.25 : 0;
    cost += least_registers(problem, config) + kUsualRegisters > register_room(config) ? 4 : 0;
    return cost;
  });
}

std::optional<std::string> window_attention_prune(const WindowAttentionProblem& problem,
                                                  const Config& config, const CompileFacts& facts,
                                                  const DeviceInfo& device) {
  constexpr int kHarmlessSpillBytes = 32;
  return misfit(facts, window_attention_kernels(problem, config), device, kHarmlessSpillBytes);
}

}  // namespace vitune
