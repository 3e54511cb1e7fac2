// generator/window_attention_backward/sm80.cpp -- The family sm80 of window attention's gradients:
// mma.sync, all rows of a window and head in shared memory.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/checked.h"
#include "core/format.h"
#include "generator/config_text.h"
#include "generator/geometry.h"
#include "generator/window_attention_backward/kernel_spec.h"
#include "generator/window_attention_backward/operator.h"

namespace vitune {
namespace {

using Shape = WindowBackwardGeometry;
using Params = WindowAttentionBackwardParams;

constexpr char kEntry[] = "vitune_window_attention_backward";
constexpr char kFinishEntry[] = "vitune_window_attention_backward_finish";
constexpr char kTableEntry[] = "vitune_window_attention_backward_table";
constexpr char kParams[] = "WindowAttentionBackwardParams";
constexpr std::int64_t kMostWarps = 16, kMostStepKeys = 144, kScratchUnit = 256;
constexpr std::int64_t kMostPartials = std::int64_t{256} << 20;  // bytes of all CTAs' sums

// Steps of equal widths, all keys in one of them where they are few.
std::vector<std::int64_t> step_widths(std::int64_t keys) {
  const std::int64_t tiles = ceil_div(keys, std::int64_t{16});
  std::vector<std::int64_t> widths;
  for (std::int64_t steps = 1; steps <= tiles; ++steps) {
    const std::int64_t width = 16 * ceil_div(tiles, steps);
    if (width > kMostStepKeys || (steps > 1 && width < 32)) continue;
    if (ceil_div(16 * tiles, width) == steps) widths.push_back(width);
  }
  std::ranges::sort(widths);
  return widths;
}

// Warps that share a window's tiles without one of them having fewer than it could.
std::vector<std::int64_t> warp_counts(std::int64_t keys) {
  const std::int64_t tiles = ceil_div(keys, std::int64_t{16});
  std::vector<std::int64_t> counts;
  for (std::int64_t warps = 1; warps <= kMostWarps; ++warps) {
    if (ceil_div(tiles, ceil_div(tiles, warps)) == warps) counts.push_back(warps);
  }
  return counts;
}

// As templates/attention/config.cuh numbers them.
int bias_code(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  if (p.bias->type == ElementType::kFp32) return 1;
  return p.bias->type == ElementType::kFp16 ? 2 : 3;
}
int bias_vector(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  return p.keys() % 4 == 0 ? 4 : p.keys() % 2 == 0 ? 2 : 1;
}

Shape facts_of(const WindowAttentionBackwardProblem& p) {
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.keys = static_cast<int>(p.forward.keys());
  facts.bias = bias_code(p.forward);
  facts.dbias = p.sums_bias() ? 1 : 0;
  facts.dpadding = p.has_dpadding() ? 1 : 0;
  return facts;
}

const Tunables<Shape>& members() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::warps, {"kWarps", {}, "warps of a CTA", false, true}},
      {&Shape::block_n, {"kBlockN", {}, "keys per step of the pass of query rows", false, true}},
      {&Shape::buffers,
       {"kBuffers", {1, 2}, "2: the next pair is copied while one is worked on", false, true}},
      {&Shape::keeps_scores,
       {"kKeepsScores",
        {0, 1},
        "1: P and dS stay in shared memory for the pass of the keys; 0: made again",
        false,
        true}},
      {&Shape::min_ctas,
       {"kMinCtas",
        {1, 2, 3, 4, 6, 8, 12, 16},
        "CTAs per SM that the compiler leaves room for",
        false,
        true}},
  };
  return all;
}

// CTAs of an entry, so that all of them are on the device at once, and their sums not too large.
std::int64_t parts_of(const WindowAttentionBackwardProblem& p, const DeviceInfo& device,
                      std::int64_t resident) {
  const std::int64_t room =
      std::max<std::int64_t>(device.sm_count, 1) * std::max<std::int64_t>(resident, 1);
  std::int64_t parts = std::min(room / p.entries(), p.instances());
  if (p.sums_bias()) {
    const std::int64_t each = 4 * p.entries() * p.forward.keys() * p.forward.keys();
    parts = std::min(parts, kMostPartials / each);
  }
  return std::max<std::int64_t>(parts, 1);
}

class WindowBackwardSm80 final : public Family {
 public:
  std::string_view name() const override { return "sm80"; }
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::string templates() const override {
    return "#include \"window_attention_backward/windows_sm80.cuh\"\n"
           "#include \"window_attention_backward/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::vector<Parameter> WindowBackwardSm80::parameters(const Problem& problem) const {
  const std::int64_t keys = window_attention_backward_of(problem).forward.keys();
  return with_values(parameters_of(members()),
                     {{"kWarps", warp_counts(keys)}, {"kBlockN", step_widths(keys)}});
}

std::vector<Constraint> WindowBackwardSm80::rules(const Problem& asked,
                                                  const DeviceInfo& device) const {
  const WindowAttentionBackwardProblem& problem = window_attention_backward_of(asked);
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  const Shape facts = facts_of(problem);
  std::vector<Constraint> rules = geometry_rules(window_backward_rules().all, members(), facts);
  rules.push_back(shape_rule<Shape>(
      "shared memory: all rows of a window and head, and of kMinCtas on an SM", members(), facts,
      {&Shape::warps, &Shape::buffers, &Shape::keeps_scores, &Shape::min_ctas},
      [shared, sm_shared](const Shape& s) {
        const std::int64_t bytes = s.shared_bytes();
        return bytes <= shared && (bytes + 1024) * s.min_ctas <= std::max(sm_shared, shared + 1024);
      },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  return rules;
}

std::optional<double> WindowBackwardSm80::rank(const Problem& asked, const Config& config,
                                               const DeviceInfo&) const {
  // A tile of rows for each warp, scores computed once, twelve warps on an SM, the next pair on its
  // way: as near as the space comes to that.
  const WindowAttentionBackwardProblem& problem = window_attention_backward_of(asked);
  const Shape t = window_backward_geometry(problem, config);
  double cost = t.steps() + Shape::parts(t.tiles(), t.warps);
  cost += std::abs(t.warps * t.min_ctas - 12) / 4.0;
  cost += std::abs(t.warps - 4) / 8.0;
  cost += t.keeps_scores == 0 ? 1 : 0;
  cost += t.buffers == 1 ? 0.25 : 0;
  cost += problem.sums_bias() && !t.sums_in_registers() ? 1 : 0;
  return cost;
}

std::string WindowBackwardSm80::source(const Problem& problem, const Config& config) const {
  const WindowAttentionBackwardProblem& asked = window_attention_backward_of(problem);
  const WindowAttentionProblem& p = asked.forward;
  const Shape t = window_backward_geometry(asked, config);
  std::string text = config_source(
      templates(), config_number("kElement", p.type == ElementType::kBf16 ? 1 : 0) +
                       config_number("kBiasVector", bias_vector(p)) +
                       config_number("kWindowRows", p.window_rows) +
                       config_number("kWindowColumns", p.window_columns) +
                       config_flag("kShifted", p.is_shifted()) +
                       config_flag("kPadded", p.is_padded()) +
                       config_flag("kPadsFirst", p.pads_first) + config_flag("kGrid", p.grid) +
                       geometry_text("WindowBackwardGeometry", t));
  text += entry_text(formatted("{}, {}", t.threads(), t.min_ctas), kEntry, kParams,
                     "window_attention_backward");
  text += entry_text(formatted("{}", Shape::kFinishThreads), kFinishEntry, kParams,
                     "window_attention_backward_finish");
  if (asked.table_rows == 0) return text;
  return text + entry_text(formatted("{}", Shape::kTableThreads), kTableEntry, kParams,
                           "window_attention_backward_table");
}

std::vector<KernelNeeds> WindowBackwardSm80::kernels(const Problem& problem,
                                                     const Config& config) const {
  const WindowAttentionBackwardProblem& p = window_attention_backward_of(problem);
  const Shape t = window_backward_geometry(p, config);
  std::vector<KernelNeeds> kernels = {{kEntry, t.threads(), t.shared_bytes()},
                                      {kFinishEntry, Shape::kFinishThreads, 0}};
  if (p.table_rows != 0) kernels.push_back({kTableEntry, Shape::kTableThreads, 0});
  return kernels;
}

// What the kernels leave each other: sums of CTAs, of padding, and dbias for a table.
struct Scratch {
  std::int64_t padding = 0, dbias = 0, end = 0;

  Scratch(const WindowAttentionBackwardProblem& p, std::int64_t ctas) {
    const std::int64_t keys = p.forward.keys();
    padding = p.sums_bias() ? round_up(4 * ctas * keys * keys, kScratchUnit) : 0;
    dbias = padding + (p.has_dpadding() ? round_up(8 * ctas * p.forward.d, kScratchUnit) : 0);
    end = dbias + (p.table_rows != 0 ? 4 * p.bias_elements() : 0);
  }
};

std::vector<PointerSlot> pointers_of(const WindowAttentionBackwardProblem& p,
                                     const Scratch& scratch) {
  std::vector<PointerSlot> pointers = window_attention_backward_pointers();
  constexpr int kScratch = PointerSlot::kScratch;
  if (p.sums_bias()) pointers.push_back({kScratch, offsetof(Params, partials)});
  if (p.has_dpadding()) {
    pointers.push_back({kScratch, offsetof(Params, padding_partials), scratch.padding});
  }
  if (p.table_rows != 0) {
    std::erase_if(pointers, [](const auto& slot) { return slot.tensor == kWindowBackwardDbias; });
    pointers.push_back({kScratch, offsetof(Params, dbias), scratch.dbias});
  }
  return pointers;
}

LaunchPlan WindowBackwardSm80::plan(const Problem& problem, const Config& config,
                                    const DeviceInfo& device, std::span<const int> resident) const {
  constexpr std::int64_t kMostFinishCtas = 1 << 16;
  const WindowAttentionBackwardProblem& p = window_attention_backward_of(problem);
  const std::int64_t parts = parts_of(p, device, resident.empty() ? 1 : resident.front());
  const std::int64_t ctas = parts * p.entries();
  const Scratch scratch(p, ctas);
  const std::int64_t sums = std::max(p.sums_bias() ? p.bias_elements() : 0,
                                     p.has_dpadding() ? 3 * p.forward.heads * p.forward.d : 0);
  const std::int64_t table_warps =
      p.table_rows == 0
          ? 0
          : p.table_rows * ceil_div(p.forward.bias->heads, std::int64_t{Shape::kTableHeads});
  const std::int64_t grids[] = {
      ctas, std::min(ceil_div(sums, std::int64_t{Shape::kFinishThreads}), kMostFinishCtas),
      ceil_div(table_warps, std::int64_t{Shape::kTableThreads / 32})};
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (grids[i] == 0) continue;
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.waits_for_earlier = i == 0 && device.cc_major >= 9;  // as in templates
    launch.shape.grid[0] = static_cast<std::uint32_t>(grids[i]);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.params = parameter_bytes(window_attention_backward_params(p, parts));
    launch.pointers = pointers_of(p, scratch);
  }
  plan.scratch_bytes = scratch.end;
  return plan;
}

}  // namespace

WindowBackwardGeometry window_backward_geometry(const WindowAttentionBackwardProblem& p,
                                                const Config& config) {
  return read_tunables(members(), config, facts_of(p));
}

const Family& window_attention_backward_sm80() {
  static const WindowBackwardSm80 instance;
  return instance;
}

}  // namespace vitune
