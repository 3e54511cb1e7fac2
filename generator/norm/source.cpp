// generator/norm/source.cpp -- A norm and a config as the source of a kernel.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/norm/kernel_spec.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_norm";

bool rows_lie_side_by_side(const NormProblem& p) {
  const auto dense = [&](bool given, std::int64_t row) { return !given || row == p.d; };
  return dense(true, p.x_row) && dense(true, p.out_row) && dense(p.residual, p.residual_row) &&
         dense(p.sum, p.sum_row) && dense(p.second.has_value(), p.second_row);
}

}  // namespace

std::string norm_entry() { return kEntry; }

std::string norm_source(const NormProblem& p, const Config& config) {
  const KernelNeeds needs = norm_kernel(config);
  std::string text = "namespace vitune {\nstruct Config {\n";
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](std::string_view name, bool value) {
    text += formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
  };
  number("kInput", judge_type(p.type));
  number("kOutput", judge_type(p.out));
  number("kParameters", judge_type(p.parameters));
  number("kSecond", p.second ? judge_type(*p.second) : -1);
  number("kColumns", p.d);
  number("kVector", config.at("kVector"));
  flag("kSideBySide", rows_lie_side_by_side(p));
  flag("kRms", p.rms);
  flag("kWeight", p.weight);
  flag("kBias", p.bias);
  flag("kResidual", p.residual);
  flag("kSum", p.sum);
  flag("kStatistics", p.statistics);
  number("kRowThreads", config.at("kRowThreads"));
  number("kRows", config.at("kRows"));
  number("kStreaming", config.at("kStreaming"));
  flag("kPersistent", config.at("kPersistent") != 0);
  return text + formatted(
                    "}};\n}}  // namespace vitune\n\n#include \"norm/rows.cuh\"\n\n"
                    "extern \"C\" __global__ void __launch_bounds__({}, {})\n"
                    "{}(const __grid_constant__ vitune::NormParams params) {{\n"
                    "  vitune::norm_rows<vitune::Config>(params);\n}}\n",
                    needs.threads, config.at("kSmWarps") * 32 / needs.threads, kEntry);
}

}  // namespace vitune
