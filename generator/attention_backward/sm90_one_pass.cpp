// generator/attention_backward/sm90_one_pass.cpp -- The family sm90_one_pass: all three gradients
// in one pass of wgmma, a head for each CTA.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/sm90_one_pass.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/format.h"
#include "generator/config_text.h"
#include "templates/attention_backward/one_pass_params.cuh"

namespace vitune {
namespace {

using Shape = AttentionBackwardOnePass;

constexpr char kEntry[] = "vitune_attention_backward_one_pass";
constexpr char kTemplates[] = "#include \"attention_backward/one_pass_sm90.cuh\"\n";
constexpr char kDropoutTemplates[] = "#include \"attention_backward/one_pass_dropout_sm90.cuh\"\n";
constexpr std::int64_t kElementBytes = 2;

bool strides_fit(const AttentionProblem& f, const TensorStrides& strides, std::int64_t rows) {
  const auto fits = [](std::int64_t extent, std::int64_t stride) {
    return extent == 1 || (stride > 0 && stride < (std::int64_t{1} << 40) / kElementBytes);
  };
  return fits(rows, strides.row) && fits(f.heads, strides.head) && fits(f.batch, strides.batch);
}

// How TMA sees the operands: a block of keys, or a step's queries, in one box for each atom.
std::vector<TensorMapSlot> maps_of(const AttentionBackwardProblem& p, const Shape& shape) {
  const AttentionProblem& f = p.forward;
  const auto slot = [&](AttentionBackwardTensor tensor, std::size_t at,
                        const TensorStrides& strides, std::int64_t rows, int box) {
    return TensorMapSlot{.tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {f.d, rows, f.heads, f.batch},
                         .strides = {strides.row, strides.head, strides.batch},
                         .columns = shape.swizzle() / kElementBytes,
                         .rows = box,
                         .swizzle = shape.swizzle()};
  };
  using Maps = AttentionBackwardOnePassMaps;
  return {slot(kAttentionBackwardQ, offsetof(Maps, q), f.q, f.nq, shape.step),
          slot(kAttentionBackwardK, offsetof(Maps, k), f.k, f.nk, Shape::kBlockKeys),
          slot(kAttentionBackwardV, offsetof(Maps, v), f.v, f.nk, Shape::kBlockKeys),
          slot(kAttentionBackwardDout, offsetof(Maps, dout), p.dout, f.nq, shape.step),
          slot(kAttentionBackwardOut, offsetof(Maps, out), f.o, f.nq, shape.step)};
}

}  // namespace

std::optional<std::string> AttentionBackwardOnePassFamily::refusal(const Problem& problem,
                                                                   const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  if (device.cc_major != 9) return "it is for compute capability 9.0";
  if (f.bias || f.mask || f.causal) return "it serves no bias and no mask, causal or given";
  if (f.heads != f.kv_heads) return "it serves no keys that query heads share";
  if (f.d < 32 || f.d > 96) return "it serves head sizes of 32 to 96";
  if (attention_backward_one_pass_facts(p).kept_sums() > Shape::kMostSums) {
    return formatted("it keeps {} sums of dQ for each CTA in L2 at most", Shape::kMostSums);
  }
  if (p.vector_bytes() != 16) {
    return formatted("tensor maps need 16-byte alignment, not {}", p.vector_bytes());
  }
  if (strides_fit(f, f.q, f.nq) && strides_fit(f, p.dout, f.nq) && strides_fit(f, f.o, f.nq) &&
      strides_fit(f, f.k, f.nk) && strides_fit(f, f.v, f.nk)) {
    return std::nullopt;
  }
  return "tensor maps need strides that are not 0 and below 2^40 bytes";
}

ConfigWords AttentionBackwardOnePassFamily::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm90 one pass {} s{} k{}", value("kQueryStep"), value("kStages"),
                    value("kKeyStages")),
          {"kQueryStep", "kStages", "kKeyStages"}};
}

std::string AttentionBackwardOnePassFamily::templates() const {
  return std::string(kTemplates) + kDropoutTemplates;
}

std::string AttentionBackwardOnePassFamily::source(const Problem& problem,
                                                   const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_one_pass_shape(p, config);
  const bool drops = p.forward.dropout != 0;
  return config_source(
             drops ? kDropoutTemplates : kTemplates,
             attention_backward_facts_text(p) + geometry_text("AttentionBackwardOnePass", shape)) +
         formatted(
             "\nextern \"C\" __global__ void __launch_bounds__({}, 1)\n"
             "{}(const __grid_constant__ vitune::{} params,\n"
             "   const __grid_constant__ vitune::AttentionBackwardOnePassMaps maps) {{\n"
             "  vitune::attention_backward_one_pass_sm90{}<vitune::Config>(params, maps);\n}}\n",
             Shape::kThreads, kEntry,
             drops ? "AttentionBackwardDropoutParams" : "AttentionBackwardParams",
             drops ? "_dropout" : "");
}

std::vector<KernelNeeds> AttentionBackwardOnePassFamily::kernels(const Problem& problem,
                                                                 const Config& config) const {
  const Shape shape = attention_backward_one_pass_shape(attention_backward_of(problem), config);
  return {{kEntry, Shape::kThreads, shape.shared_bytes()}};
}

LaunchPlan AttentionBackwardOnePassFamily::plan(const Problem& problem, const Config& config,
                                                const DeviceInfo& device,
                                                std::span<const int>) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_one_pass_shape(p, config);
  const std::int64_t heads = p.forward.batch * p.forward.heads;
  const std::int64_t ctas = std::min(heads, std::int64_t{std::max(device.sm_count, 1)});
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.kernel = 0;
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas);
  launch.shape.block[0] = Shape::kThreads;
  launch.shape.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
  set_attention_backward_params(launch, p);
  launch.map_bytes = sizeof(AttentionBackwardOnePassMaps);
  launch.maps = maps_of(p, shape);
  plan.scratch_bytes = ctas * std::int64_t{shape.scratch_sums()} * 4;
  return plan;
}

const GemmFamily& attention_backward_sm90_one_pass() {
  static const AttentionBackwardOnePassFamily instance;
  return instance;
}

}  // namespace vitune
