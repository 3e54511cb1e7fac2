// generator/attention/producer_rules.cpp -- What goes with warps that do nothing but copy.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/even_items.h"
#include "generator/attention/rules.h"
#include "generator/attention/tensor_maps.h"

namespace vitune {
namespace {

// What the rules know of the problem and the device.
struct Setting {
  AttentionFacts facts;
  std::int64_t heads;  // of all batches
  std::int64_t heads_of_batch;
  std::int64_t sms;
  bool mapped;       // tensor maps can say where the tensors lie
  bool heads_alike;  // the bias is the same for all batches
};

// Which kernels have warps that copy, and how they do it.
std::vector<NamedRule> who_copies(const Setting& setting) {
  const AttentionFacts& facts = setting.facts;
  const bool mapped = setting.mapped;
  return {
      {"copying warps serve warpgroups of a persistent CTA",
       {"kSwizzle", "kPersistent", "kHeadsPerCta", "kRowSplit", "kBiasInRegisters", "kProducer"},
       [bytes = facts.copy_bytes](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.producer) return std::nullopt;
         if (!s.warpgroups() || !s.persistent) {
           return "kProducer needs kSwizzle and kPersistent = 1";
         }
         if (s.heads_per_cta != 1 || s.row_split != 1) {
           return "kProducer goes with kHeadsPerCta = 1 and kRowSplit = 1";
         }
         if (s.bias_in_registers && !s.tensor_copies()) {
           return "kProducer = 1 goes with kBiasInRegisters = 0";
         }
         if (bytes < 4) return formatted("tensors aligned to {} bytes", bytes);
         return std::nullopt;
       }},
      {"tensor maps: rows of 16-byte pieces that do not overlap, keys in their order",
       {"kProducer"},
       [mapped](const AttentionShape& s) -> std::optional<std::string> {
         if (s.producer == 1 && mapped) return "kProducer = 1 where tensor maps serve";
         if (!s.tensor_copies() || mapped) return std::nullopt;
         return "kProducer = 2 needs 16-byte alignment, strides above 0, no mask, and a bias of 16 "
                "bits whose keys are contiguous";
       }},
  };
}

// How rows are dealt to warpgroups beside copying warps.
std::vector<NamedRule> rows_rules(const Setting& setting) {
  const AttentionFacts& facts = setting.facts;
  return {
      {"spare rows: up to 8 beyond a multiple of 64, without a causal mask",
       {"kProducer", "kSpareRows"},
       [causal = facts.causal](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.spare_rows) return std::nullopt;
         if (!s.tensor_copies() || causal) {
           return "kSpareRows needs kProducer = 2 and no causal mask";
         }
         if (s.block_rows() < s.nq) return std::nullopt;
         return formatted("{} rows leave no more than {} over", s.nq, s.spare_rows);
       }},
      {"by tensor maps each warpgroup of a resident head has a block of its rows",
       {"kResident", "kWarps", "kProducer", "kSpareRows"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         const std::int64_t blocks = ceil_div(s.block_rows(), kGroupRows);
         if (!s.tensor_copies() || !s.resident || s.warps / 4 <= blocks) return std::nullopt;
         return formatted("{} warpgroups for {} blocks of rows", s.warps / 4, blocks);
       }},
  };
}

// Work items of fewer rows.
std::vector<NamedRule> even_item_rules(const Setting& setting) {
  const AttentionFacts& facts = setting.facts;
  const std::int64_t heads = setting.heads, sms = setting.sms;
  return {
      {"work items of a streaming CTA with copying warps can be evened out, without a causal mask",
       {"kResident", "kProducer", "kEvenItems"},
       [causal = facts.causal](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.even_items || (s.producer && !s.resident && !causal)) return std::nullopt;
         return "kEvenItems needs kProducer, kResident = 0 and no causal mask";
       }},
      {"CTAs that keep a bias have whole heads for work items",
       {"kEvenItems", "kBiasInRegisters"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.even_items || !s.bias_in_registers) return std::nullopt;
         return "kEvenItems goes with kBiasInRegisters = 0";
       }},
      {"work items are evened out where that lets persistent CTAs end sooner",
       {"kResident", "kWarps", "kProducer", "kSpareRows", "kEvenItems"},
       [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.even_items || s.warps % 4 != 0) return std::nullopt;
         const double before = EvenItems::plain(s, heads, sms).rounds;
         const double after = EvenItems::best(s, heads, sms).rounds;
         if (after <= (1 - kWorthEvening) * before) return std::nullopt;
         return formatted("{:.1f} rounds of work items instead of {:.1f}", after, before);
       }},
  };
}

// A bias that stays for all work items of a CTA.
std::vector<NamedRule> kept_bias_rules(const Setting& setting) {
  const AttentionFacts& facts = setting.facts;
  const bool heads_alike = setting.heads_alike;
  const std::int64_t sms = setting.sms;
  return {
      {"copying warps bring a bias once where all work items of a CTA have the same one",
       {"kResident", "kWarps", "kBiasInRegisters", "kProducer", "kSpareRows"},
       [facts, heads_alike, sms,
        each = setting.heads_of_batch](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.tensor_copies() || !s.bias_in_registers) return std::nullopt;
         if (!facts.bias_whole_rows || facts.bias_one_row || facts.causal || !heads_alike) {
           return "kBiasInRegisters = 1 needs rows without gaps, the same bias for all batches and "
                  "no causal mask";
         }
         const std::int64_t blocks = ceil_div(s.block_rows(), kGroupRows), groups = s.warps / 4;
         if (s.resident ? blocks != groups : blocks > groups) {
           return formatted("{} blocks of rows for {} warpgroups", blocks, groups);
         }
         if (each > sms) return formatted("{} heads for {} SMs", each, sms);
         return std::nullopt;
       }},
  };
}

// Keys per step.
std::vector<NamedRule> step_rules() {
  return {
      {"what is waited for when is of interest only where warps copy",
       {"kProducer", "kValuesFirst"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.producer || !s.values_first) return std::nullopt;
         return "kValuesFirst = 1 needs kProducer";
       }},
      {"wide steps that divide nothing are for copying warps",
       {"kBlockN", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         const bool wide = s.block_n == 112 || s.block_n == 160 || s.block_n == 176;
         if (s.producer || !wide || s.equal_steps()) return std::nullopt;
         return formatted("kBlockN = {} with kProducer = 0", s.block_n);
       }},
      {"the widest steps are for two warpgroups beside copying warps",
       {"kBlockN", "kWarps", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.block_n <= kMostSharedStepKeys || (s.producer && s.warps == 8)) return std::nullopt;
         return formatted("kBlockN = {} leaves too few registers", s.block_n);
       }},
  };
}

// What an SM has room for, and a problem has work for.
std::vector<NamedRule> room_rules(const Setting& setting) {
  const std::int64_t heads = setting.heads, sms = setting.sms;
  return {
      {"copying warps and several warpgroups take the whole SM",
       {"kWarps", "kMinCtas", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.producer || s.warps == 4 || s.min_ctas == 1) return std::nullopt;
         return formatted("kMinCtas = {} with {} warps", s.min_ctas, s.warps);
       }},
      {"no more heads in flight than a CTA works on",
       {"kResident", "kStages", "kProducer"},
       [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.producer || !s.resident || s.stages <= ceil_div(heads, sms)) return std::nullopt;
         return formatted("{} stages for {} heads", s.stages, ceil_div(heads, sms));
       }},
  };
}

}  // namespace

std::vector<NamedRule> producer_rules(const AttentionProblem& problem, const DeviceInfo& device) {
  const Setting setting{
      attention_facts(problem),
      problem.batch * problem.heads,
      problem.heads,
      sms_of(device),
      tensor_maps_fit(problem),
      problem.bias && (problem.bias->batches == 1 || problem.bias->strides[0] == 0)};
  std::vector<NamedRule> rules;
  for (auto& part : {who_copies(setting), rows_rules(setting), even_item_rules(setting),
                     kept_bias_rules(setting), step_rules(), room_rules(setting)}) {
    rules.insert(rules.end(), part.begin(), part.end());
  }
  return rules;
}

}  // namespace vitune
