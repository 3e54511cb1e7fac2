// generator/linear/sm80.cpp -- The family sm80: mma.sync, one launch, or two and memory between.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/sm80.h"

#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

constexpr PointerSlot kPartials = {PointerSlot::kScratch, offsetof(LinearParams, partials)};

constexpr int kSumThreads = 256;

LinearParams params_of(const LinearProblem& p, const LinearSm80Shape& shape) {
  LinearParams params = linear_params(p);
  params.splits = shape.splits;
  params.split_columns = static_cast<int>(shape.split_columns());
  return params;
}

}  // namespace

// With many rows it takes more than twice as long as sm90 (docs/lab/2026-11-24-linear-mma.md).
std::optional<std::string> LinearSm80::refusal(const Problem& problem,
                                               const DeviceInfo& device) const {
  constexpr std::int64_t kManyRows = 1024;
  const LinearProblem& p = linear_of(problem);
  if (p.has_moments()) return "moments of rows are sm90's";
  if (p.m < kManyRows || linear_sm90().refusal(problem, device)) return std::nullopt;
  return formatted("sm90 serves it, and {} rows are too many to be faster here", p.m);
}

ConfigWords LinearSm80::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  return {formatted("sm80 {}x{}x{} {}x{}w s{}", value("kBlockM"), value("kBlockN"),
                    value("kBlockK"), value("kWarpM"), value("kWarpN"), value("kStages")),
          {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages"}};
}

std::string LinearSm80::source(const Problem& problem, const Config& config) const {
  const LinearProblem& p = linear_of(problem);
  const LinearSm80Shape shape(p, config);
  std::string text =
      config_source(templates(), linear_facts_text(p) + geometry_text<GemmSm80>("GemmSm80", shape) +
                                     config_flag("kSplit", shape.splits > 1));
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  text += entry_text(entries[0].threads, entries[0].entry, "LinearParams", "linear_gemm_sm80");
  if (entries.size() == 1) return text;
  return text +
         entry_text(entries[1].threads, entries[1].entry, "LinearParams", "linear_split_sum");
}

// A second kernel adds splits.
std::vector<KernelNeeds> LinearSm80::kernels(const Problem& problem, const Config& config) const {
  const LinearSm80Shape shape(linear_of(problem), config);
  std::vector<KernelNeeds> kernels = {{"vitune_linear", shape.threads(), shape.shared_bytes()}};
  if (shape.splits > 1) kernels.push_back({"vitune_linear_split_sum", kSumThreads, 0});
  return kernels;
}

LaunchPlan LinearSm80::plan(const Problem& problem, const Config& config, const DeviceInfo&,
                            std::span<const int>) const {
  const LinearProblem& p = linear_of(problem);
  const LinearSm80Shape shape(p, config);
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  const std::int64_t splits = shape.splits;
  LaunchPlan plan;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // The second kernel's threads go on to further results where these are too few.
    constexpr std::int64_t kMostSumCtas = 65535;
    const std::int64_t sum_ctas = std::min(ceil_div(p.m * p.n, kSumThreads), kMostSumCtas);
    KernelLaunch launch;
    launch.kernel = i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(i == 0 ? shape.tiles() * splits : sum_ctas);
    launch.shape.block[0] = static_cast<std::uint32_t>(entries[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(entries[i].shared_bytes);
    launch.params = parameter_bytes(params_of(p, shape));
    const auto pointers = linear_pointers(p);
    launch.pointers.assign(pointers.begin(), pointers.end());
    if (splits > 1) launch.pointers.push_back(kPartials);
    plan.kernels.push_back(std::move(launch));
  }
  if (splits > 1) plan.scratch_bytes = 4 * splits * p.m * p.n;
  return plan;
}

const GemmFamily& linear_sm80() {
  static const LinearSm80 instance;
  return instance;
}

}  // namespace vitune
