// generator/attention/rules.cpp -- Rules that several families of attention have.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/rules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/checked.h"
#include "core/format.h"

namespace vitune {

std::vector<NamedRule> resource_rules(const DeviceInfo& device) {
  return {
      {"the widest steps are for two warpgroups beside copying warps",
       {"kBlockN", "kWarps", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.block_n <= kMostSharedStepKeys || (s.producer && s.warps == 8)) return std::nullopt;
         return formatted("kBlockN = {} leaves too few registers", s.block_n);
       }},
      {"shared memory: (query rows + K + V) x pitch <= bytes per block",
       {"kSwizzle", "kResident", "kConstantKeys", "kWarps", "kRowTiles", "kBlockN", "kStages",
        "kHeadsPerCta", "kProducer", "kSpareRows", "kKeySplit"},
       [device](const AttentionShape& s) -> std::optional<std::string> {
         if (s.shared_bytes() <= device.shared_per_block) return std::nullopt;
         return formatted("{} bytes of shared memory, the device has {}", s.shared_bytes(),
                          device.shared_per_block);
       }},
      {"registers: scores + outputs + queries of a warp leave room for the rest",
       {"kWarps", "kRowTiles", "kBlockN", "kQueryInRegisters", "kProducer", "kSpareRows"},
       [device](const AttentionShape& s) -> std::optional<std::string> {
         // Weights take the place of scores where ptxas can let them.
         const std::int64_t rest = s.producer ? 24 : 48;
         AttentionShape alone = s;
         alone.min_ctas = 1;
         const std::int64_t limit =
             s.producer ? alone.register_limit(device.registers_per_sm) : 255;
         if (s.live_registers() + rest <= limit) return std::nullopt;
         return formatted("{} live registers + {} > {}", s.live_registers(), rest, limit);
       }},
      {"kMinCtas: its register cap binds and the live registers fit below it",
       {"kSwizzle", "kWarps", "kRowTiles", "kBlockN", "kQueryInRegisters", "kMinCtas", "kProducer",
        "kSpareRows"},
       [device](const AttentionShape& s) -> std::optional<std::string> {
         if (s.min_ctas == 1) return std::nullopt;
         const std::int64_t cap = s.register_limit(device.registers_per_sm);
         if (cap >= 255) return formatted("kMinCtas = {} does not bind", s.min_ctas);
         // Below this ptxas gives up on a wgmma (C7602) where it would spill around an mma.sync.
         const std::int64_t rest = s.warpgroups() ? 24 : 12;
         if (s.live_registers() + rest > cap) {
           return formatted("{} live registers + {} > {}", s.live_registers(), rest, cap);
         }
         if (cap > 2 * s.live_registers() + 64) return formatted("a cap of {} does not bind", cap);
         return std::nullopt;
       }},
      {"kMinCtas: that many CTAs fit into shared memory and threads",
       {},
       [device](const AttentionShape& s) -> std::optional<std::string> {
         const std::int64_t shared = (s.shared_bytes() + 1024) * s.min_ctas;
         if (s.min_ctas > 1 && shared > device.shared_per_sm) {
           return formatted("{} bytes of shared memory per SM", shared);
         }
         if (s.threads() * s.min_ctas > device.threads_per_sm) {
           return formatted("{} threads per SM", s.threads() * s.min_ctas);
         }
         return std::nullopt;
       }},
  };
}

NamedRule rows_rule() {
  return {"every warp of a CTA has rows to work on",
          {"kResident", "kWarps", "kRowTiles", "kHeadsPerCta", "kRowSplit", "kKeySplit"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            const std::int64_t tiles = ceil_div(s.nq, s.warp_rows());
            const std::int64_t warps = s.row_warps() * s.row_split;
            if (warps <= tiles || warps == 1) return std::nullopt;
            // A streaming CTA of few warps also loads; half of them may lack rows.
            if (!s.resident && warps <= 2 * tiles) return std::nullopt;
            return formatted("{} warps for {} tiles of {} rows", warps, tiles, s.warp_rows());
          }};
}

NamedRule items_rule(const AttentionProblem& problem, const DeviceInfo& device) {
  const std::int64_t heads = problem.batch * problem.heads, sms = sms_of(device);
  return {"persistent CTAs need more work items than SMs",
          {},
          [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
            if (!s.persistent || (s.producer && s.items(heads) >= sms) || s.items(heads) > 2 * sms)
              return std::nullopt;
            return formatted("{} items for {} SMs", s.items(heads), sms);
          }};
}

NamedRule wide_steps_rule() {
  return {"wide steps that divide nothing are for copying warps",
          {"kBlockN"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            const bool wide = s.block_n == 112 || s.block_n == 160 || s.block_n == 176;
            if (!wide || s.equal_steps()) return std::nullopt;
            return formatted("kBlockN = {} without copying warps", s.block_n);
          }};
}

NamedRule stages_rule() {
  return {"no more stages than steps of keys",
          {"kStages", "kBlockN", "kKeySplit"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            if (s.stages <= std::max<std::int64_t>(s.rounds(), 1)) return std::nullopt;
            return formatted("{} stages for {} steps", s.stages, s.rounds());
          }};
}

std::vector<NamedRule> resident_rules(const AttentionProblem& problem, const DeviceInfo& device) {
  const std::int64_t heads = problem.batch * problem.heads, sms = sms_of(device);
  return {{"warps are split evenly between the heads of a CTA",
           {"kWarps", "kHeadsPerCta"},
           [](const AttentionShape& s) -> std::optional<std::string> {
             if (s.warps % s.heads_per_cta == 0) return std::nullopt;
             return formatted("{} warps cannot be split between {} heads", s.warps,
                              s.heads_per_cta);
           }},
          {"several heads per CTA only where one pass covers a head's rows",
           {"kHeadsPerCta", "kWarps", "kRowTiles"},
           [heads](const AttentionShape& s) -> std::optional<std::string> {
             if (s.heads_per_cta == 1) return std::nullopt;
             if (s.heads_per_cta > heads) return formatted("only {} heads in all", heads);
             if (s.block_m() >= s.nq) return std::nullopt;
             return formatted("{} rows per pass for {} queries", s.block_m(), s.nq);
           }},
          {"rows of a head are split only while there are few CTAs",
           {"kHeadsPerCta", "kRowSplit"},
           [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
             if (s.row_split == 1) return std::nullopt;
             const std::int64_t ctas = ceil_div(heads, s.heads_per_cta) * s.row_split / 2;
             if (ctas < 8 * sms && s.heads_per_cta == 1) return std::nullopt;
             return formatted("{} CTAs fill the device without it", ctas);
           }},
          {"a bias stays in registers only from one window to the next of a persistent CTA",
           {"kBlockN", "kWarps", "kRowTiles", "kHeadsPerCta", "kRowSplit", "kPersistent",
            "kBiasInRegisters"},
           [](const AttentionShape& s) -> std::optional<std::string> {
             if (!s.bias_in_registers) return std::nullopt;
             if (!s.persistent) return "kBiasInRegisters = 1 needs kPersistent = 1";
             if (s.steps() > 1) return formatted("{} steps of keys; it takes one", s.steps());
             if (!s.one_pass()) return formatted("{} rows per pass for {}", s.block_m(), s.nq);
             return std::nullopt;
           }},
          items_rule(problem, device)};
}

NamedRule wgmma_steps_rule() {
  return {"warpgroups take keys in steps of 16, or all at once",
          {"kResident", "kBlockN"},
          [](const AttentionShape& s) -> std::optional<std::string> {
            if (s.block_n % 16 != 0 && (s.steps() > 1 || !s.resident)) {
              return formatted("{} steps of {} keys", s.steps(), s.block_n);
            }
            return std::nullopt;
          }};
}

void append(std::vector<NamedRule>& rules, std::vector<NamedRule> more) {
  std::ranges::move(more, std::back_inserter(rules));
}

}  // namespace vitune
