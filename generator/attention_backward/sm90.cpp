// generator/attention_backward/sm90.cpp -- The family sm90: two passes of wgmma whose tiles come by
// tensor maps.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/sm90.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention_backward/tensor_maps.h"
#include "generator/config_text.h"
#include "templates/attention_backward/sm90_params.cuh"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm90;
using Pass = Shape::Pass;

constexpr char kDqEntry[] = "vitune_attention_backward_dq";
constexpr char kDkvEntry[] = "vitune_attention_backward_dkv";

// Rows in boxes of a warpgroup's, steps in one box.
BackwardBoxes boxes_of(const Pass& pass, bool of_keys_rows) {
  const int rows = Shape::kGroupRows;
  return {pass.swizzle(), of_keys_rows ? pass.step : rows, of_keys_rows ? rows : pass.step,
          !of_keys_rows};
}

constexpr char kTemplates[] =
    "#include \"attention_backward/dq_sm90.cuh\"\n"
    "#include \"attention_backward/dkv_sm90.cuh\"\n";
constexpr char kDropoutTemplates[] = "#include \"attention_backward/dropout_sm90.cuh\"\n";

std::string entry_text(const Shape& shape, bool drops, const char* entry, const char* function) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ vitune::{} params,\n"
      "   const __grid_constant__ vitune::AttentionBackwardTensorMaps maps) {{\n"
      "  vitune::{}{}<vitune::Config>(params, maps);\n}}\n",
      shape.threads(), shape.ctas(), entry,
      drops ? "AttentionBackwardDropoutParams" : "AttentionBackwardParams", function,
      drops ? "_dropout" : "");
}

}  // namespace

std::optional<std::string> AttentionBackwardSm90Family::refusal(const Problem& problem,
                                                                const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  if (device.cc_major != 9) return "it is for compute capability 9.0";
  if (f.bias || f.mask) return "it serves no bias and no mask";
  return attention_backward_maps_refusal(p);
}

ConfigWords AttentionBackwardSm90Family::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm90 {}g dq {} dkv {} s{}", value("kGroups"), value("kKeyStep"),
                    value("kQueryStep"), value("kStages")),
          {"kGroups", "kKeyStep", "kQueryStep", "kStages"}};
}

std::string AttentionBackwardSm90Family::templates() const {
  return std::string(kTemplates) + kDropoutTemplates;
}

std::string AttentionBackwardSm90Family::source(const Problem& problem,
                                                const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_sm90_shape(p, config);
  const bool drops = p.forward.dropout != 0;
  return config_source(
             drops ? kDropoutTemplates : kTemplates,
             attention_backward_facts_text(p) + geometry_text("AttentionBackwardSm90", shape)) +
         entry_text(shape, drops, kDqEntry, "attention_backward_dq_sm90") +
         entry_text(shape, drops, kDkvEntry, "attention_backward_dkv_sm90");
}

std::vector<KernelNeeds> AttentionBackwardSm90Family::kernels(const Problem& problem,
                                                              const Config& config) const {
  const Shape shape = attention_backward_sm90_shape(attention_backward_of(problem), config);
  return {{kDqEntry, shape.threads(), shape.dq().shared_bytes()},
          {kDkvEntry, shape.threads(), shape.dkv().shared_bytes()}};
}

LaunchPlan AttentionBackwardSm90Family::plan(const Problem& problem, const Config& config,
                                             const DeviceInfo& device,
                                             std::span<const int> resident) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  const Shape shape = attention_backward_sm90_shape(p, config);
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  const std::int64_t items[] = {f.batch * f.heads * shape.query_blocks(),
                                f.batch * f.kv_heads * shape.key_blocks()};
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const bool of_keys_rows = i == 1;
    const std::int64_t room = std::int64_t{std::max(device.sm_count, 1)} * resident[i];
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(std::min(items[i], room));
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
    set_attention_backward_params(launch, p);
    launch.map_bytes = sizeof(AttentionBackwardTensorMaps);
    launch.maps =
        attention_backward_maps(p, boxes_of(of_keys_rows ? shape.dkv() : shape.dq(), of_keys_rows));
  }
  // Two numbers of each query, from one pass to the other.
  plan.scratch_bytes = f.batch * f.heads * std::int64_t{shape.stats_rows()} * 2 * 4;
  return plan;
}

const GemmFamily& attention_backward_sm90() {
  static const AttentionBackwardSm90Family instance;
  return instance;
}

}  // namespace vitune
