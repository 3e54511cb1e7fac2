// generator/attention_backward/dbias.cpp -- How a bias's gradient is launched: tiles of its
// entries, and parts of the scores that share these.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/dbias.h"

#include <algorithm>

#include "core/checked.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/gemm/family.h"
#include "generator/gemm/source.h"
#include "generator/geometry.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_attention_backward_dbias";
constexpr char kFinishEntry[] = "vitune_attention_backward_dbias_finish";
constexpr std::int64_t kMostPartials = std::int64_t{256} << 20;  // bytes of all parts

// Entries of dbias, their elements, and the batch entries and heads that share one.
std::int64_t entries_of(const AttentionBackwardProblem& p) {
  return p.forward.bias->batches * (p.forward.heads / p.sharing_heads());
}
std::int64_t elements_of(const AttentionBackwardProblem& p) {
  return entries_of(p) * p.forward.nq * p.forward.nk;
}

std::int64_t tiles_of(const AttentionBackwardProblem& p, const AttentionBackwardDbias& g) {
  return entries_of(p) * ceil_div(p.forward.nq, std::int64_t{g.rows()}) *
         ceil_div(p.forward.nk, std::int64_t{g.keys});
}

// So many parts that each SM has CTAs to hide latency, as far as there is something to share and
// the parts' sums are not too large.
std::int64_t parts_of(const AttentionBackwardProblem& p, const AttentionBackwardDbias& g,
                      const DeviceInfo& device) {
  constexpr std::int64_t kCtas = 4;
  const std::int64_t wanted = ceil_div(kCtas * sms_of(device, kUsualSms), tiles_of(p, g));
  const std::int64_t room = kMostPartials / (4 * elements_of(p));
  const std::int64_t parts = std::min({wanted, room, p.sharing_batches() * p.sharing_heads()});
  return std::max<std::int64_t>(parts, 1);
}

}  // namespace

std::string dbias_templates() { return "#include \"attention_backward/dbias.cuh\"\n"; }

std::string dbias_text(const AttentionBackwardDbias& g) {
  if (g.keys == 0) return {};
  const std::string text = geometry_text<AttentionBackwardDbias>("AttentionBackwardDbias", g);
  constexpr std::string_view kName = " kGeometry ";
  return std::string(text).replace(text.find(kName), kName.size(), " kDbiasGeometry ");
}

std::string dbias_entries(const AttentionBackwardDbias& g) {
  if (g.keys == 0) return {};
  return entry_text(g.threads(), kEntry, "AttentionBackwardParams", "attention_backward_dbias") +
         entry_text(g.kFinishThreads, kFinishEntry, "AttentionBackwardParams",
                    "attention_backward_dbias_finish");
}

std::vector<KernelNeeds> dbias_kernels(const AttentionBackwardDbias& g) {
  if (g.keys == 0) return {};
  return {{kEntry, g.threads(), g.shared_bytes()}, {kFinishEntry, g.kFinishThreads, 0}};
}

void append_dbias(LaunchPlan& plan, const AttentionBackwardProblem& p,
                  const AttentionBackwardDbias& g, std::size_t first, const DeviceInfo& device) {
  if (g.keys == 0) return;
  constexpr std::int64_t kMostFinishCtas = 1 << 20;
  const std::int64_t parts = parts_of(p, g, device);
  const std::int64_t partials_at = round_up(attention_backward_delta_bytes(p), kScratchUnit);
  const std::int64_t ctas[] = {
      parts * tiles_of(p, g),
      std::min(ceil_div(elements_of(p), std::int64_t{g.kFinishThreads}), kMostFinishCtas)};
  AttentionBackwardParams params = attention_backward_params(p);
  params.parts = static_cast<int>(parts);
  const std::vector<KernelNeeds> needs = dbias_kernels(g);
  for (std::size_t i = 0; i < (parts > 1 ? needs.size() : 1); ++i) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = first + i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(ctas[i]);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.params = parameter_bytes(params);
    launch.pointers = attention_backward_pointers();
    launch.pointers.push_back(
        {PointerSlot::kScratch, offsetof(AttentionBackwardParams, partials), partials_at});
  }
  if (parts > 1) {
    plan.scratch_bytes = std::max(plan.scratch_bytes, partials_at + 4 * parts * elements_of(p));
  }
}

}  // namespace vitune
