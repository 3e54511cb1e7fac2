// generator/group_norm/source.cpp -- A group norm and a config as the source of its kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

std::string entry_text(const KernelNeeds& kernel, const std::string& attributes,
                       std::int64_t resident) {
  constexpr std::string_view kPrefix = "vitune_";
  const std::string_view name = std::string_view(kernel.entry).substr(kPrefix.size());
  const std::string_view function = name == "group_norm" ? "group_norm_whole" : name;
  return formatted(
      "\nextern \"C\" __global__ void {}__launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ vitune::GroupNormParams params) {{\n"
      "  vitune::{}<vitune::Config>(params);\n}}\n",
      attributes, kernel.threads, resident, kernel.entry, function);
}

}  // namespace

std::int64_t GroupNormFamily::wanted_ctas(const GroupNormTiling& t) const {
  constexpr std::int64_t kEnoughThreads = 1024;
  const std::int64_t most = std::max<std::int64_t>(kEnoughThreads / t.threads, 1);
  return std::clamp<std::int64_t>(kSmRegisters / (t.threads * t.registers()), 1, most);
}

std::string GroupNormFamily::templates() const {
  return formatted("#include \"group_norm/{}.cuh\"\n", template_name());
}

std::string GroupNormFamily::source(const Problem& problem, const Config& config) const {
  const GroupNormProblem& p = group_norm_of(problem);
  const GroupNormTiling t = group_norm_tiling(p, config);
  std::string text = "namespace vitune {\nstruct Config {\n";
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](std::string_view name, bool value) {
    text += formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
  };
  number("kType", judge_type(p.type));
  number("kParameters", judge_type(p.parameters));
  number("kActivation", static_cast<int>(p.activation));
  flag("kNhwc", p.nhwc);
  flag("kWeight", p.weight);
  flag("kBias", p.bias);
  number("kPositions", p.positions);
  number("kAllGroups", p.groups);
  number("kGroupChannels", p.group_channels());
  number("kThreads", t.threads);
  number("kGroups", t.groups);
  number("kChunks", t.chunks);
  number("kPieces", t.pieces);
  number("kStreaming", config.at("kStreaming"));
  flag("kSliced", t.sliced);
  number("kVector", t.vector);
  number("kVectorChannels", t.vector_channels);
  number("kRows", t.rows);
  number("kRowVectors", t.row_vectors);
  number("kRowStride", t.row_stride);
  number("kChunkRows", t.chunk_rows);
  number("kSlotStride", t.slot_stride);
  text += facts_text(t) + "};\n}  // namespace vitune\n\n" + templates();
  for (const KernelNeeds& kernel : kernels(problem, config)) {
    text += entry_text(kernel, attributes(t), wanted_ctas(t));
  }
  return text;
}

}  // namespace vitune
