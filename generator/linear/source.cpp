// generator/linear/source.cpp -- A linear layer and a config as the source of its kernels.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

std::string entry_text(const KernelNeeds& kernel, std::string_view body) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ vitune::LinearParams params) {{\n"
      "  vitune::{}<vitune::Config>(params);\n}}\n",
      kernel.threads, kernel.entry, body);
}

}  // namespace

std::string linear_source(const LinearProblem& p, const Config& config) {
  std::string text = "namespace vitune {\nstruct Config {\n";
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](std::string_view name, bool value) {
    text += formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
  };
  const LinearAccesses accesses = linear_accesses(p);
  number("kElement", judge_type(p.type));
  number("kOutput", judge_type(p.out));
  number("kParameters", judge_type(p.parameters));
  number("kActivation", static_cast<int>(p.activation));
  number("kNorm", static_cast<int>(p.norm));
  flag("kBias", p.bias);
  flag("kScale", p.scale);
  flag("kResidual", p.residual);
  flag("kAux", p.aux);
  flag("kPeriodic", p.period() > 0);
  flag("kPeriodicResidual", p.residual_period > 0);
  flag("kTransposed", p.transposed);
  number("kCopyX", accesses.x_bytes);
  number("kCopyW", accesses.w_bytes);
  number("kVector", accesses.vector);
  for (const char* const name :
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages", "kRaster"}) {
    number(name, config.at(name));
  }
  flag("kSplit", config.at("kSplits") > 1);
  number("kCtaThreads", linear_threads(config));
  number("kSharedBytes", linear_shared_bytes(p, config));
  text += "};\n}  // namespace vitune\n\n#include \"linear/gemm_sm80.cuh\"\n";
  const std::vector<KernelNeeds> kernels = linear_kernels(p, config);
  text += entry_text(kernels[0], "linear_gemm_sm80");
  if (kernels.size() > 1) text += entry_text(kernels[1], "linear_split_sum");
  return text;
}

}  // namespace vitune
