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
#include "generator/config_text.h"
#include "generator/geometry.h"
#include "generator/window_attention/kernel_spec.h"
#include "generator/window_attention/operator.h"

namespace vitune {
namespace {

using Shape = WindowGeometry;

constexpr std::int64_t kMostWarps = 16, kMostStepKeys = 208;

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

Shape facts_of(const WindowAttentionProblem& p) {
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.d);
  facts.keys = static_cast<int>(p.keys());
  facts.bias = bias_code(p);
  return facts;
}

const Tunables<Shape>& members() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::heads_per_cta,
       {"kHeadsPerCta",
        {1, 2, 3, 4, 6, 8},
        "windows' heads that a CTA works on at once",
        false,
        true}},
      {&Shape::row_warps, {"kRowWarps", {}, "warps of each", false, true}},
      {&Shape::row_tiles, {"kRowTiles", {1, 2}, "16-row tiles of a warp at once", false, true}},
      {&Shape::block_n, {"kBlockN", {}, "keys per step", false, true}},
      {&Shape::buffers,
       {"kBuffers", {1, 2}, "2: the next one is copied while one is worked on", false, true}},
      {&Shape::min_ctas,
       {"kMinCtas",
        {1, 2, 3, 4, 5, 6, 8, 10, 12, 16},
        "CTAs per SM that the compiler leaves room for",
        false,
        true}},
      {&Shape::persistent, {"kPersistent", {0, 1}, "1: CTAs walk over many windows", false, true}},
      {&Shape::bias_in_registers,
       {"kBiasInRegisters", {0, 1}, "1: a bias is kept for the next window", false, true}},
  };
  return all;
}

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
    const Shape t = window_geometry(window_attention_of(problem), config);
    return {{"vitune_window_attention", t.threads(), t.shared_bytes()}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::vector<Parameter> WindowsSm80::parameters(const Problem& problem) const {
  const std::int64_t keys = window_attention_of(problem).keys();
  return with_values(parameters_of(members()),
                     {{"kRowWarps", warp_counts(keys)}, {"kBlockN", step_widths(keys)}});
}

std::vector<Constraint> WindowsSm80::rules(const Problem& asked, const DeviceInfo& device) const {
  const WindowAttentionProblem& problem = window_attention_of(asked);
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  const Shape facts = facts_of(problem);
  std::vector<Constraint> rules = geometry_rules(window_rules().all, members(), facts);
  rules.push_back(shape_rule<Shape>(
      "shared memory: all rows of the windows that a CTA works on, and of kMinCtas on an SM",
      members(), facts,
      {&Shape::heads_per_cta, &Shape::row_warps, &Shape::row_tiles, &Shape::block_n,
       &Shape::buffers, &Shape::min_ctas},
      [shared, sm_shared](const Shape& s) {
        const std::int64_t bytes = s.shared_bytes();
        return bytes <= shared && (bytes + 1024) * s.min_ctas <= std::max(sm_shared, shared + 1024);
      },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  return rules;
}

std::optional<double> WindowsSm80::rank(const Problem& asked, const Config& config,
                                        const DeviceInfo&) const {
  const WindowAttentionProblem& problem = window_attention_of(asked);
  // A tile of rows for each warp, all keys in one step, sixteen warps on an SM, no spills: as near
  // as the space comes to that.
  constexpr int kUsualRegisters = 32;  // beside the least
  const Shape t = window_geometry(problem, config);
  const double warps = t.warps(), resident = warps * t.min_ctas;
  const bool keeps = t.bias_in_registers != 0;
  const bool may_keep = problem.bias && problem.bias->windows == 1;
  double cost = t.steps() + t.row_tiles + Shape::parts(t.tiles(), t.row_warps);
  cost += std::abs(warps - 4) / 8 + std::abs(resident - 16) / 16;
  cost += t.persistent == 0 ? 0.25 : 0;
  cost += t.buffers == 2 ? 0.25 : 0;
  cost += keeps != may_keep ? 0.25 : 0;
  cost += t.registers() + kUsualRegisters > t.register_room() ? 4 : 0;
  return cost;
}

std::string WindowsSm80::source(const Problem& problem, const Config& config) const {
  const WindowAttentionProblem& p = window_attention_of(problem);
  const Shape t = window_geometry(p, config);
  return config_source(templates(),
                       config_number("kElement", p.type == ElementType::kBf16 ? 1 : 0) +
                           config_number("kBiasVector", bias_vector(p)) +
                           config_number("kWindowRows", p.window_rows) +
                           config_number("kWindowColumns", p.window_columns) +
                           config_flag("kShifted", p.is_shifted()) +
                           config_flag("kPadded", p.is_padded()) +
                           config_flag("kPadsFirst", p.pads_first) + config_flag("kGrid", p.grid) +
                           geometry_text("WindowGeometry", t)) +
         entry_text(formatted("{}, {}", t.threads(), t.min_ctas), "vitune_window_attention",
                    "WindowAttentionParams", "window_attention");
}

LaunchPlan WindowsSm80::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                             std::span<const int> resident) const {
  const WindowAttentionProblem& p = window_attention_of(problem);
  const Shape t = window_geometry(p, config);
  KernelLaunch launch;
  launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  const std::int64_t at_once = resident.empty() ? 1 : resident.front();
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas_of(p, config, device, at_once));
  launch.shape.block[0] = static_cast<std::uint32_t>(t.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(t.shared_bytes());
  launch.params = parameter_bytes(window_attention_params(p));
  launch.pointers = window_attention_pointers();
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

}  // namespace

WindowGeometry window_geometry(const WindowAttentionProblem& p, const Config& config) {
  return read_tunables(members(), config, facts_of(p));
}

const Family& window_attention_sm80() {
  static const WindowsSm80 instance;
  return instance;
}

}  // namespace vitune
