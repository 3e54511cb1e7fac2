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

std::string entry_text(const KernelNeeds& kernel, std::string_view body) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ vitune::LinearParams params) {{\n"
      "  vitune::{}<vitune::Config>(params);\n}}\n",
      kernel.threads, kernel.entry, body);
}

LinearParams params_of(const LinearProblem& p, const Config& config) {
  LinearParams params = linear_params(p);
  params.splits = static_cast<int>(config.at("kSplits"));
  params.split_columns = static_cast<int>(linear_sm80_split_columns(p, config));
  return params;
}

}  // namespace

// Of many rows it takes more than twice as long as sm90 (docs/lab/2026-11-24-linear-mma.md).
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
  std::string text = "namespace vitune {\nstruct Config {\n" + linear_facts_text(p);
  for (const char* const name :
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages", "kRaster"}) {
    text += linear_number(name, config.at(name));
  }
  text += linear_flag("kSplit", config.at("kSplits") > 1) +
          linear_number("kCtaThreads", linear_sm80_threads(config)) +
          linear_number("kSharedBytes", linear_sm80_shared_bytes(p, config)) +
          "};\n}  // namespace vitune\n\n" + templates();
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  text += entry_text(entries[0], "linear_gemm_sm80");
  if (entries.size() > 1) text += entry_text(entries[1], "linear_split_sum");
  return text;
}

// A second kernel adds splits.
std::vector<KernelNeeds> LinearSm80::kernels(const Problem& problem, const Config& config) const {
  std::vector<KernelNeeds> kernels = {{"vitune_linear",
                                       static_cast<int>(linear_sm80_threads(config)),
                                       linear_sm80_shared_bytes(linear_of(problem), config)}};
  if (config.at("kSplits") > 1) kernels.push_back({"vitune_linear_split_sum", kSumThreads, 0});
  return kernels;
}

LaunchPlan LinearSm80::plan(const Problem& problem, const Config& config, const DeviceInfo&,
                            std::span<const int>) const {
  const LinearProblem& p = linear_of(problem);
  const std::vector<KernelNeeds> entries = kernels(problem, config);
  const std::int64_t splits = config.at("kSplits");
  LaunchPlan plan;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // The second kernel's threads go on to further results where these are too few.
    constexpr std::int64_t kMostSumCtas = 65535;
    const std::int64_t sum_ctas = std::min(ceil_div(p.m * p.n, kSumThreads), kMostSumCtas);
    KernelLaunch launch;
    launch.kernel = i;
    launch.shape.grid[0] =
        static_cast<std::uint32_t>(i == 0 ? linear_sm80_tiles(p, config) * splits : sum_ctas);
    launch.shape.block[0] = static_cast<std::uint32_t>(entries[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(entries[i].shared_bytes);
    launch.params = parameter_bytes(params_of(p, config));
    const auto pointers = linear_pointers(p);
    launch.pointers.assign(pointers.begin(), pointers.end());
    if (splits > 1) launch.pointers.push_back(kPartials);
    plan.kernels.push_back(std::move(launch));
  }
  if (splits > 1) plan.scratch_bytes = 4 * splits * p.m * p.n;
  return plan;
}

std::int64_t linear_sm80_threads(const Config& config) {
  return 32 * (config.at("kBlockM") / config.at("kWarpM")) *
         (config.at("kBlockN") / config.at("kWarpN"));
}

std::int64_t linear_sm80_shared_bytes(const LinearProblem& p, const Config& config) {
  const std::int64_t block_n = config.at("kBlockN"), block_k = config.at("kBlockK");
  // Panels of w as [k, n] are 64 columns wide, or 32.
  const std::int64_t panel = block_n % 64 == 0 ? 64 : 32;
  const std::int64_t w_columns = p.transposed ? round_up(block_n, panel) : block_n;
  const std::int64_t stage = 2 * block_k * (config.at("kBlockM") + w_columns);
  const std::int64_t staging =
      linear_sm80_threads(config) / 32 * 16 * 4 * (config.at("kWarpN") + 8);
  return std::max(config.at("kStages") * stage, staging);
}

std::int64_t linear_sm80_tiles(const LinearProblem& p, const Config& config) {
  return ceil_div(p.m, config.at("kBlockM")) * ceil_div(p.n, config.at("kBlockN"));
}

std::int64_t linear_sm80_split_columns(const LinearProblem& p, const Config& config) {
  const std::int64_t steps = ceil_div(p.k, config.at("kBlockK"));
  return ceil_div(steps, config.at("kSplits")) * config.at("kBlockK");
}

const LinearFamily& linear_sm80() {
  static const LinearSm80 instance;
  return instance;
}

}  // namespace vitune
