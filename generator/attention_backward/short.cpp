// generator/attention_backward/short.cpp -- The family sm80_short: one pass of mma.sync over heads
// whose rows all fit a CTA.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/short.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/dropout.h"
#include "generator/config_text.h"
#include "templates/attention_backward/geometry_dbias.cuh"

namespace vitune {
namespace {

using Shape = AttentionBackwardShort;

constexpr char kEntry[] = "vitune_attention_backward_short";
constexpr char kFinishEntry[] = "vitune_attention_backward_short_finish";
constexpr int kFinishThreads = AttentionBackwardDbias::kFinishThreads;
constexpr std::int64_t kMostRows = 128;
constexpr std::int64_t kMostPartials = std::int64_t{256} << 20;  // bytes of all parts

// Entries of the bias, whose scores a CTA keeps to itself; without one, all are of one entry.
std::int64_t entries_of(const AttentionBackwardProblem& p) {
  return p.forward.bias ? p.forward.bias->batches * (p.forward.heads / p.sharing_heads()) : 1;
}
std::int64_t dbias_elements(const AttentionBackwardProblem& p) {
  return entries_of(p) * p.forward.nq * p.forward.nk;
}

// CTAs of an entry: without a bias one for each head, unless the next one's copy is to hide behind
// the work; else so many that all are on the device at once, and their sums not too large.
std::int64_t parts_of(const AttentionBackwardProblem& p, const Shape& shape,
                      const DeviceInfo& device, std::int64_t resident) {
  const std::int64_t all = p.forward.batch * p.forward.heads;
  const std::int64_t room = sms_of(device, kUsualSms) * std::max<std::int64_t>(resident, 1);
  if (!p.forward.bias) return shape.buffers == 1 ? all : std::min(all, room);
  std::int64_t parts = std::min(room / entries_of(p), all / entries_of(p));
  if (p.dbias) parts = std::min(parts, kMostPartials / (4 * dbias_elements(p)));
  // A CTA whose heads all have the same entry of the mask reads it once.
  const std::int64_t masks = p.forward.mask ? p.forward.mask->batches : 1;
  if (p.sharing_heads() == 1 && parts > masks) parts -= parts % masks;
  return std::max<std::int64_t>(parts, 1);
}

AttentionBackwardParams params_of(const AttentionBackwardProblem& p, std::int64_t parts) {
  AttentionBackwardParams params = attention_backward_params(p);
  const bool has_bias = p.forward.bias.has_value();
  params.dbias_batches = has_bias ? static_cast<int>(p.forward.bias->batches) : 1;
  params.dbias_heads = has_bias ? static_cast<int>(p.forward.heads / p.sharing_heads()) : 1;
  params.sharing_batches = static_cast<int>(has_bias ? p.sharing_batches() : p.forward.batch);
  params.sharing_heads = static_cast<int>(has_bias ? p.sharing_heads() : p.forward.heads);
  params.parts = static_cast<int>(parts);
  return params;
}

std::vector<PointerSlot> pointers_of(const AttentionBackwardProblem& p, std::int64_t parts) {
  std::vector<PointerSlot> pointers = attention_backward_pointers();
  std::erase_if(pointers,
                [](const PointerSlot& slot) { return slot.tensor == PointerSlot::kScratch; });
  if (p.dbias && parts > 1) {
    pointers.push_back({PointerSlot::kScratch, offsetof(AttentionBackwardParams, partials)});
  }
  return pointers;
}

std::string entry_text(int threads, int ctas, const char* entry, const char* function) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ vitune::AttentionBackwardParams params) {{\n"
      "  vitune::{}<vitune::Config>(params);\n}}\n",
      threads, ctas, entry, function);
}

}  // namespace

std::optional<std::string> AttentionBackwardShortFamily::refusal(const Problem& problem,
                                                                 const DeviceInfo&) const {
  const AttentionProblem& f = attention_backward_of(problem).forward;
  if (std::max(f.nq, f.nk) > kMostRows) {
    return formatted("it has all scores of a head in registers: at most {} rows, not {}", kMostRows,
                     std::max(f.nq, f.nk));
  }
  if (f.kv_heads != f.heads) return "it serves no keys that query heads share";
  return no_dropout(f);
}

ConfigWords AttentionBackwardShortFamily::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm80_short {}w s{} {} per SM", value("kWarps"), value("kBuffers"),
                    value("kMinCtas")),
          {"kWarps", "kBuffers", "kMinCtas"}};
}

std::string AttentionBackwardShortFamily::templates() const {
  return "#include \"attention_backward/short_sm80.cuh\"\n";
}

std::string AttentionBackwardShortFamily::source(const Problem& problem,
                                                 const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_short_shape(p, config);
  const std::string text =
      config_source(templates(), attention_backward_facts_text(p) +
                                     geometry_text("AttentionBackwardShort", shape)) +
      entry_text(shape.threads(), shape.min_ctas, kEntry, "attention_backward_short");
  if (!p.dbias) return text;
  return text + entry_text(kFinishThreads, 1, kFinishEntry, "attention_backward_dbias_finish");
}

std::vector<KernelNeeds> AttentionBackwardShortFamily::kernels(const Problem& problem,
                                                               const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_short_shape(p, config);
  std::vector<KernelNeeds> kernels = {{kEntry, shape.threads(), shape.shared_bytes()}};
  if (p.dbias) kernels.push_back({kFinishEntry, kFinishThreads, 0});
  return kernels;
}

LaunchPlan AttentionBackwardShortFamily::plan(const Problem& problem, const Config& config,
                                              const DeviceInfo& device,
                                              std::span<const int> resident) const {
  constexpr std::int64_t kMostFinishCtas = 1 << 16;
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_short_shape(p, config);
  const std::int64_t parts = parts_of(p, shape, device, resident.empty() ? 1 : resident.front());
  const bool has_finish = p.dbias && parts > 1;
  const std::int64_t grids[] = {
      parts * entries_of(p),
      has_finish
          ? std::min(ceil_div(dbias_elements(p), std::int64_t{kFinishThreads}), kMostFinishCtas)
          : 0};
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  LaunchPlan plan;
  for (std::size_t i = 0; i < (has_finish ? needs.size() : 1); ++i) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.waits_for_earlier = i == 0 && device.cc_major >= 9;  // as in templates
    launch.shape.grid[0] = static_cast<std::uint32_t>(grids[i]);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.params = parameter_bytes(params_of(p, parts));
    launch.pointers = pointers_of(p, parts);
  }
  if (has_finish) plan.scratch_bytes = 4 * parts * dbias_elements(p);
  return plan;
}

const GemmFamily& attention_backward_short() {
  static const AttentionBackwardShortFamily instance;
  return instance;
}

}  // namespace vitune
