// generator/attention_backward/sm80.cpp -- The family sm80: two passes of mma.sync, and dbias.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/sm80.h"

#include <iterator>
#include <utility>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/dropout.h"
#include "generator/attention_backward/dbias.h"
#include "generator/gemm/source.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm80Shape;

constexpr char kDqEntry[] = "vitune_attention_backward_dq";
constexpr char kDkvEntry[] = "vitune_attention_backward_dkv";
constexpr char kTemplates[] =
    "#include \"attention_backward/dq_sm80.cuh\"\n"
    "#include \"attention_backward/dkv_sm80.cuh\"\n";
constexpr char kDropoutTemplates[] = "#include \"attention_backward/dropout_sm80.cuh\"\n";

}  // namespace

ConfigWords AttentionBackwardSm80Family::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {
      formatted("sm80 dq {}w {} s{} dkv {}x{}w {} s{}", value("kDqWarps"), value("kDqKeys"),
                value("kDqStages"), value("kDkvWarps"), value("kDkvGroups"), value("kDkvRows"),
                value("kDkvStages")),
      {"kDqWarps", "kDqKeys", "kDqStages", "kDkvWarps", "kDkvGroups", "kDkvRows", "kDkvStages"}};
}

std::optional<std::string> AttentionBackwardSm80Family::refusal(const Problem& problem,
                                                                const DeviceInfo&) const {
  return unsuited_dropout(attention_backward_of(problem).forward, true);
}

std::string AttentionBackwardSm80Family::templates() const {
  return std::string(kTemplates) + kDropoutTemplates + dbias_templates();
}

std::string AttentionBackwardSm80Family::source(const Problem& problem,
                                                const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape(p, config);
  const std::string facts = attention_backward_facts_text(p) +
                            geometry_text<AttentionBackwardSm80>("AttentionBackwardSm80", shape);
  if (p.forward.dropout != 0) {
    constexpr char kParams[] = "AttentionBackwardDropoutParams";
    return config_source(kDropoutTemplates, facts) +
           entry_text(shape.dq_threads(), kDqEntry, kParams, "attention_backward_dq_dropout") +
           entry_text(shape.dkv_threads(), kDkvEntry, kParams, "attention_backward_dkv_dropout");
  }
  return config_source(kTemplates + dbias_templates(), facts + dbias_text(shape.dbias())) +
         entry_text(shape.dq_threads(), kDqEntry, "AttentionBackwardParams",
                    "attention_backward_dq") +
         entry_text(shape.dkv_threads(), kDkvEntry, "AttentionBackwardParams",
                    "attention_backward_dkv") +
         dbias_entries(shape.dbias());
}

std::vector<KernelNeeds> AttentionBackwardSm80Family::kernels(const Problem& problem,
                                                              const Config& config) const {
  const Shape shape(attention_backward_of(problem), config);
  std::vector<KernelNeeds> kernels = {{kDqEntry, shape.dq_threads(), shape.dq_bytes()},
                                      {kDkvEntry, shape.dkv_threads(), shape.dkv_bytes()}};
  for (KernelNeeds& needs : dbias_kernels(shape.dbias())) kernels.push_back(std::move(needs));
  return kernels;
}

LaunchPlan AttentionBackwardSm80Family::plan(const Problem& problem, const Config& config,
                                             const DeviceInfo& device, std::span<const int>) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  const Shape shape(p, config);
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  const std::int64_t ctas[] = {
      f.batch * f.heads * ceil_div(f.nq, std::int64_t{shape.dq_block()}),
      f.batch * f.kv_heads * ceil_div(f.nk, std::int64_t{shape.dkv_block()})};
  LaunchPlan plan;
  for (std::size_t i = 0; i < std::size(ctas); ++i) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(ctas[i]);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    set_attention_backward_params(launch, p);
  }
  plan.scratch_bytes = attention_backward_delta_bytes(p);
  append_dbias(plan, p, shape.dbias(), std::size(ctas), device);
  return plan;
}

const GemmFamily& attention_backward_sm80() {
  static const AttentionBackwardSm80Family instance;
  return instance;
}

}  // namespace vitune
