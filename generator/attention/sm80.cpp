// generator/attention/sm80.cpp -- The families of forward_sm80.cuh: mma.sync, on every
// architecture.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"

namespace vitune {
namespace {

// Warps that share the keys of a row (key_split.cuh).
std::vector<NamedRule> key_split_rules(std::int64_t heads, const DeviceInfo& device) {
  const std::int64_t sms = sms_of(device);
  return {
      {"keys are split for few rows",
       {"kKeySplit"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1 || s.nq <= kGroupRows) return std::nullopt;
         return formatted("{} rows", s.nq);
       }},
      {"keys are split evenly between the warps of a CTA",
       {"kKeySplit", "kWarps"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.warps % s.key_split == 0) return std::nullopt;
         return formatted("{} warps cannot be split between {} shares", s.warps, s.key_split);
       }},
      {"warps that share keys have one row tile",
       {"kKeySplit", "kRowTiles"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1 || s.row_tiles == 1) return std::nullopt;
         return "kKeySplit needs kRowTiles = 1";
       }},
      // With one, barriers of the CTA stand within a step, of which shares have different kinds.
      {"warps that share keys have two stages of them or more",
       {"kKeySplit", "kStages"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1 || s.stages > 1) return std::nullopt;
         return "kKeySplit needs kStages = 2 or more";
       }},
      {"keys are split while rows leave the device idle, and each share has some",
       {"kKeySplit", "kWarps", "kRowTiles", "kBlockN"},
       [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1) return std::nullopt;
         if (s.steps() < s.key_split) return formatted("only {} steps of keys", s.steps());
         if (s.row_warps() > 0 && s.items(heads) <= 8 * sms) return std::nullopt;
         return "there are rows enough for all warps";
       }},
      {"what shares of keys hand over fits into the tiles of keys and values",
       {"kKeySplit", "kWarps", "kBlockN", "kStages"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1) return std::nullopt;
         const std::int64_t parts =
             (s.key_split - 1) * s.row_warps() * (4 + s.head_dim / 2) * 32 * 4;
         const std::int64_t tiles = 2 * s.stages * s.key_split * s.block_n * s.pitch();
         if (parts <= tiles) return std::nullopt;
         return formatted("{} bytes for {}", parts, tiles);
       }},
  };
}

// True if the problem has so many rows and keys that kernels with tensor maps are fastest. Head
// sizes that leave swizzled rows partly empty need more keys.
bool is_for_tensor_maps(const AttentionProblem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kRounds = 2, kFewRows = 32;
  const bool has_keys = problem.nk >= 128 || (problem.d % 32 == 0 && problem.nk > kFewRows);
  return problem.nq > kFewRows && has_keys && has_rounds_by_tensor_maps(problem, device, kRounds);
}

// The rules for such problems: kernels of any key count, for drivers that know no tensor maps.
std::vector<NamedRule> fallback_rules(std::int64_t blocks) {
  return {{"many rows and keys are for copies by tensor maps, else for any key count",
           {"kConstantKeys"},
           [blocks](const AttentionShape& s) -> std::optional<std::string> {
             if (!s.constant_keys) return std::nullopt;
             return formatted("kConstantKeys = 1 with {} blocks of 64 rows", blocks);
           }},
          {"there four warps have one row tile each, and all registers",
           {"kWarps", "kMinCtas"},
           [](const AttentionShape& s) -> std::optional<std::string> {
             if (s.warps == 4 && s.min_ctas == 1) return std::nullopt;
             return formatted("kWarps = {}, kMinCtas = {}", s.warps, s.min_ctas);
           }}};
}

// A draw is for sixteen keys (templates/attention/dropout.cuh).
NamedRule dropout_rule() {
  return {"with dropout several steps of keys are multiples of 16",
          {"kBlockN", "kConstantKeys"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            if ((s.constant_keys && s.steps() == 1) || s.block_n % 16 == 0) return std::nullopt;
            return formatted("kBlockN = {}", s.block_n);
          }};
}

NamedRule one_row_tile_rule() {
  return {"two row tiles per warp are for devices without wgmma",
          {"kRowTiles"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            if (s.row_tiles == 1) return std::nullopt;
            return formatted("kRowTiles = {}", s.row_tiles);
          }};
}

class AttentionSm80 final : public AttentionFamily {
 public:
  explicit AttentionSm80(bool is_resident) : AttentionFamily("sm80", is_resident) {}

 private:
  bool has_dropout() const override { return true; }
  bool is_made_of(const Config& config) const override { return !is_set(config, "kSwizzle"); }
  Values values(const AttentionProblem& problem) const override;
  std::vector<NamedRule> own_rules(const AttentionProblem& problem,
                                   const DeviceInfo& device) const override;
};

AttentionSm80::Values AttentionSm80::values(const AttentionProblem& problem) const {
  Values values = {{"kRowTiles", {1, 2}}, {"kQueryInRegisters", {0, 1}}};
  if (is_resident_) {
    values.insert(values.end(), {{"kConstantKeys", {1}},
                                 {"kWarps", {1, 2, 4, 8, 16}},
                                 {"kStages", {1, 2}},
                                 {"kHeadsPerCta", {1, 2, 4, 8}},
                                 {"kRowSplit", {1, 2, 4, 8, 16}},
                                 {"kPersistent", {0, 1}}});
    if (problem.bias) values.push_back({"kBiasInRegisters", {0, 1}});
  } else {
    values.insert(values.end(), {{"kConstantKeys", {0, 1}},
                                 {"kWarps", {1, 2, 4, 8}},
                                 {"kStages", {1, 2, 3}},
                                 {"kKeySplit", {1, 2, 4, 8}}});
  }
  return values;
}

std::vector<NamedRule> AttentionSm80::own_rules(const AttentionProblem& problem,
                                                const DeviceInfo& device) const {
  std::vector<NamedRule> rules = {
      rows_rule(),
      wide_steps_rule(),
      {"queries are read from shared memory again only where registers are short",
       {"kRowTiles", "kBlockN", "kQueryInRegisters"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.query_in_registers || s.live_registers() >= 88) return std::nullopt;
         return formatted("{} live registers leave room for the queries", s.live_registers());
       }}};
  if (problem.dropout != 0) rules.push_back(dropout_rule());
  if (!lacks_wgmma(device)) rules.push_back(one_row_tile_rule());
  if (is_for_tensor_maps(problem, device)) append(rules, fallback_rules(row_blocks(problem)));
  if (!is_resident_) {
    rules.push_back(stages_rule());
    append(rules, key_split_rules(problem.batch * problem.heads, device));
    return rules;
  }
  append(rules, resident_rules(problem, device));
  rules.push_back({"two query tiles only with queries in registers",
                   {"kStages", "kQueryInRegisters"},
                   [](const AttentionShape& s) -> std::optional<std::string> {
                     if (s.stages == 1 || s.query_in_registers) return std::nullopt;
                     return "kStages = 2 needs kQueryInRegisters = 1";
                   }});
  return rules;
}

}  // namespace

const Family& attention_sm80(bool is_resident) {
  static const AttentionSm80 streaming(false), resident(true);
  return is_resident ? resident : streaming;
}

}  // namespace vitune
