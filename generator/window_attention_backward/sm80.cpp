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

constexpr char kEntry[] = "vitune_window_attention_backward";
constexpr char kParams[] = "WindowAttentionBackwardParams";
constexpr std::int64_t kMostWarps = 16, kMostStepKeys = 144;

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

Shape facts_of(const WindowAttentionBackwardProblem& p) {
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.keys = static_cast<int>(p.forward.keys());
  facts.bias = window_attention_backward_bias(p.forward);
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

class WindowBackwardSm80 final : public Family {
 public:
  std::string_view name() const override { return "sm80"; }
  // Those of sm80_short have no steps of keys.
  bool owns(const Config& config) const override { return config.find("kBlockN").value_or(1) != 0; }
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
                  std::span<const int> resident) const override {
    return window_attention_backward_plan(window_attention_backward_of(problem),
                                          kernels(problem, config), device, resident);
  }
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
  const Shape t = window_backward_geometry(asked, config);
  return config_source(templates(), window_attention_backward_facts_text(asked.forward) +
                                        geometry_text("WindowBackwardGeometry", t)) +
         entry_text(formatted("{}, {}", t.threads(), t.min_ctas), kEntry, kParams,
                    "window_attention_backward") +
         window_attention_backward_sums_text(asked, "window_attention_backward");
}

std::vector<KernelNeeds> WindowBackwardSm80::kernels(const Problem& problem,
                                                     const Config& config) const {
  const WindowAttentionBackwardProblem& p = window_attention_backward_of(problem);
  const Shape t = window_backward_geometry(p, config);
  return window_attention_backward_kernels(p, {kEntry, t.threads(), t.shared_bytes()});
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
