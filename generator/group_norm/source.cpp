// generator/group_norm/source.cpp -- A group norm and a config as the source of its kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/config_text.h"
#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {

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
  text += config_number("kType", judge_type(p.type));
  text += config_number("kParameters", judge_type(p.parameters));
  text += config_number("kActivation", static_cast<int>(p.activation));
  text += config_flag("kNhwc", p.nhwc);
  text += config_flag("kWeight", p.weight);
  text += config_flag("kBias", p.bias);
  text += config_number("kPositions", p.positions);
  text += config_number("kAllGroups", p.groups);
  text += config_number("kGroupChannels", p.group_channels());
  text += config_number("kThreads", t.threads);
  text += config_number("kGroups", t.groups);
  text += config_number("kChunks", t.chunks);
  text += config_number("kPieces", t.pieces);
  text += config_number("kStreaming", config.at("kStreaming"));
  text += config_flag("kSliced", t.sliced);
  text += config_number("kVector", t.vector);
  text += config_number("kVectorChannels", t.vector_channels);
  text += config_number("kRows", t.rows);
  text += config_number("kRowVectors", t.row_vectors);
  text += config_number("kRowStride", t.row_stride);
  text += config_number("kChunkRows", t.chunk_rows);
  text += config_number("kSlotStride", t.slot_stride);
  text += facts_text(t) + "};\n}  // namespace vitune\n\n" + templates();
  for (const KernelNeeds& kernel : kernels(problem, config)) {
    constexpr std::string_view kPrefix = "vitune_";
    const std::string_view name = std::string_view(kernel.entry).substr(kPrefix.size());
    text += entry_text(formatted("{}, {}", kernel.threads, wanted_ctas(t)), kernel.entry,
                       "GroupNormParams", name == "group_norm" ? "group_norm_whole" : name,
                       attributes(t));
  }
  return text;
}

}  // namespace vitune
