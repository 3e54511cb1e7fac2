// generator/window_attention/sm80.cpp -- The family sm80 of window attention: mma.sync, all rows of
// a CTA's windows in shared memory.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/kernel_spec.h"
#include "generator/window_attention/kernel_spec.h"
#include "generator/window_attention/operator.h"

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

// As templates/attention/config.cuh numbers them.
int bias_code(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  if (p.bias->type == ElementType::kFp32) return 1;
  return p.bias->type == ElementType::kFp16 ? 2 : 3;
}

// Keys of an aligned load: rows of the bias follow each other without gaps.
int bias_vector(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  return p.keys() % 4 == 0 ? 4 : p.keys() % 2 == 0 ? 2 : 1;
}

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(WindowAttentionParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kWindowQ, at_call(offsetof(AttentionParams, q))},
    {kWindowK, at_call(offsetof(AttentionParams, k))},
    {kWindowV, at_call(offsetof(AttentionParams, v))},
    {kWindowBias, at_call(offsetof(AttentionParams, bias))},
    {kWindowPadding, offsetof(WindowAttentionParams, padding)},
    {kWindowOut, at_call(offsetof(AttentionParams, o))},
};

// CTAs, so that those that walk keep what they have in registers: a whole number of rounds over the
// biases that there are.
std::int64_t ctas_of(const WindowAttentionProblem& p, const Config& config,
                     const DeviceInfo& device, std::int64_t resident) {
  const std::int64_t each = config.at("kHeadsPerCta"), all = ceil_div(p.pairs(), each);
  if (config.at("kPersistent") == 0) return all;
  const std::int64_t room =
      std::max<std::int64_t>(device.sm_count, 1) * std::max<std::int64_t>(resident, 1);
  const std::int64_t ctas = std::min(all, room);
  if (config.at("kBiasInRegisters") == 0) return ctas;
  const std::int64_t biases = p.bias->windows * p.heads;
  const std::int64_t round = biases / std::gcd(biases, each);
  return ctas > round ? ctas - ctas % round : ctas;
}

class WindowsSm80 final : public Family {
 public:
  std::string_view name() const override { return "sm80"; }
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::string templates() const override {
    return "#include \"window_attention/windows_sm80.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const WindowTiling t = window_tiling(window_attention_of(problem), config);
    return {{"vitune_window_attention", static_cast<int>(t.threads()), t.shared_bytes()}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::vector<Parameter> WindowsSm80::parameters(const Problem& asked) const {
  const WindowAttentionProblem& problem = window_attention_of(asked);
  return {
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
}

std::vector<Constraint> WindowsSm80::rules(const Problem& asked, const DeviceInfo& device) const {
  const WindowAttentionProblem& problem = window_attention_of(asked);
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  return {
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
}

std::optional<double> WindowsSm80::rank(const Problem& asked, const Config& config,
                                        const DeviceInfo&) const {
  const WindowAttentionProblem& problem = window_attention_of(asked);
  // A tile of rows for each warp, all keys in one step, sixteen warps on an SM, no spills: as near
  // as the space comes to that.
  constexpr std::int64_t kUsualRegisters = 32;  // beside the least
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
}

std::string WindowsSm80::source(const Problem& problem, const Config& config) const {
  const WindowAttentionProblem& p = window_attention_of(problem);
  const WindowTiling t = window_tiling(p, config);
  std::string text = "namespace vitune {\nstruct Config {\n";
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](std::string_view name, bool value) {
    text += formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
  };
  number("kElement", p.type == ElementType::kBf16 ? 1 : 0);
  number("kHeadDim", p.d);
  number("kBias", bias_code(p));
  number("kBiasVector", bias_vector(p));
  number("kWindowRows", p.window_rows);
  number("kWindowColumns", p.window_columns);
  number("kKeys", p.keys());
  flag("kShifted", p.is_shifted());
  flag("kPadded", p.is_padded());
  flag("kPadsFirst", p.pads_first);
  flag("kGrid", p.grid);
  for (const char* const name : {"kHeadsPerCta", "kRowWarps", "kRowTiles", "kBlockN", "kBuffers",
                                 "kMinCtas", "kPersistent", "kBiasInRegisters"}) {
    number(name, config.at(name));
  }
  number("kCtaThreads", t.threads());
  number("kSharedBytes", t.shared_bytes());
  return text + formatted(
                    "}};\n}}  // namespace vitune\n\n"
                    "#include \"window_attention/windows_sm80.cuh\"\n\n"
                    "extern \"C\" __global__ void __launch_bounds__({}, vitune::Config::kMinCtas)\n"
                    "vitune_window_attention(const __grid_constant__ "
                    "vitune::WindowAttentionParams params) {{\n"
                    "  vitune::window_attention<vitune::Config>(params);\n}}\n",
                    t.threads());
}

LaunchPlan WindowsSm80::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                             std::span<const int> resident) const {
  const WindowAttentionProblem& p = window_attention_of(problem);
  const WindowTiling t = window_tiling(p, config);
  KernelLaunch launch;
  launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  const std::int64_t at_once = resident.empty() ? 1 : resident.front();
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas_of(p, config, device, at_once));
  launch.shape.block[0] = static_cast<std::uint32_t>(t.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(t.shared_bytes());
  launch.params = parameter_bytes(window_attention_params(p));
  launch.pointers.assign(std::begin(kPointers), std::end(kPointers));
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

}  // namespace

WindowTiling window_tiling(const WindowAttentionProblem& p, const Config& config) {
  WindowTiling t;
  t.heads_per_cta = config.at("kHeadsPerCta");
  t.row_warps = config.at("kRowWarps");
  t.row_tiles = config.at("kRowTiles");
  t.block_n = config.at("kBlockN");
  t.buffers = config.at("kBuffers");
  t.tiles = ceil_div(p.keys(), 16 * t.row_tiles);
  t.steps = ceil_div(p.keys(), t.block_n);
  t.query_rows = 16 * t.row_tiles * t.tiles;
  t.key_rows = (t.steps - 1) * t.block_n + round_up(p.keys() - (t.steps - 1) * t.block_n, 8);
  t.pitch = 16 * (p.d / 8 | 1);
  return t;
}

const Family& window_attention_sm80() {
  static const WindowsSm80 instance;
  return instance;
}

}  // namespace vitune
