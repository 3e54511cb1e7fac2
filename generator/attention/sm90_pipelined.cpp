// generator/attention/sm90_pipelined.cpp -- The families of forward_sm90_pipelined.cuh: wgmma,
// beside warps that do nothing but copy.
// SPDX-License-Identifier: Apache-2.0
#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/even_items.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"
#include "generator/attention/tensor_maps.h"

namespace vitune {
namespace {

// Work items of fewer rows, and keys that stream through.
std::vector<NamedRule> streaming_rules(std::int64_t heads, std::int64_t sms) {
  return {rows_rule(),
          {"CTAs that keep a bias have whole heads for work items",
           {"kEvenItems", "kBiasInRegisters"},
           [](const AttentionShape& s) -> std::optional<std::string> {
             if (!s.even_items || !s.bias_in_registers) return std::nullopt;
             return "kEvenItems goes with kBiasInRegisters = 0";
           }},
          {"work items are evened out where that lets persistent CTAs end sooner",
           {"kWarps", "kProducer", "kSpareRows", "kEvenItems"},
           [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
             if (!s.even_items) return std::nullopt;
             const double before = EvenItems::plain(s, heads, sms).rounds;
             const double after = EvenItems::best(s, heads, sms).rounds;
             if (after <= (1 - kWorthEvening) * before) return std::nullopt;
             return formatted("{:.1f} rounds of work items instead of {:.1f}", after, before);
           }}};
}

std::vector<NamedRule> heads_rules(std::int64_t heads, std::int64_t sms) {
  return {{"by tensor maps each warpgroup of a resident head has a block of its rows",
           {"kWarps", "kProducer", "kSpareRows"},
           [](const AttentionShape& s) -> std::optional<std::string> {
             const std::int64_t blocks = ceil_div(s.block_rows(), kGroupRows);
             if (!s.tensor_copies() || s.warps / 4 <= blocks) return std::nullopt;
             return formatted("{} warpgroups for {} blocks of rows", s.warps / 4, blocks);
           }},
          {"no more heads in flight than a CTA works on",
           {"kStages"},
           [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
             if (s.stages <= ceil_div(heads, sms)) return std::nullopt;
             return formatted("{} stages for {} heads", s.stages, ceil_div(heads, sms));
           }}};
}

class AttentionSm90Pipelined final : public AttentionFamily {
 public:
  explicit AttentionSm90Pipelined(bool is_resident)
      : AttentionFamily("sm90_pipelined", is_resident) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const int bytes = attention_facts(attention_of(problem)).copy_bytes;
    if (bytes < 4) return formatted("copies have 4 bytes, tensors are aligned to {}", bytes);
    if (const auto why = AttentionFamily::refusal(problem, device)) return why;
    return lacks_wgmma(device);
  }
  bool is_of_one_architecture() const override { return true; }
  // Warps that only copy spill where it does not matter.
  int harmless_spill_bytes() const override { return 192; }

 private:
  bool has_dropout() const override { return true; }
  bool is_made_of(const Config& config) const override {
    return is_set(config, "kSwizzle") && is_set(config, "kProducer");
  }
  Values values(const AttentionProblem& problem) const override;
  std::vector<NamedRule> own_rules(const AttentionProblem& problem,
                                   const DeviceInfo& device) const override;
};

// CTAs persist. By tensor maps (kProducer = 2), where these can say how the tensors lie.
AttentionSm90Pipelined::Values AttentionSm90Pipelined::values(
    const AttentionProblem& problem) const {
  const bool mapped = tensor_maps_fit(problem);
  Values values = {{"kConstantKeys", {1}},          {"kSwizzle", swizzle_widths(problem)},
                   {"kProducer", {mapped ? 2 : 1}}, {"kValuesFirst", {0, 1}},
                   {"kQueryInRegisters", {0}},      {"kPersistent", {1}}};
  if (is_resident_) {
    values.insert(values.end(), {{"kWarps", {4, 8, 12, 16}}, {"kStages", {1, 2, 3, 4}}});
  } else {
    values.insert(values.end(), {{"kWarps", {4, 8, 12}}, {"kStages", {2, 3, 4}}});
  }
  if (mapped && !problem.causal && problem.dropout == 0) {
    values.push_back({"kSpareRows", {0, 8}});
  }
  if (!is_resident_ && !problem.causal) values.push_back({"kEvenItems", {0, 1}});
  if (mapped && problem.bias) values.push_back({"kBiasInRegisters", {0, 1}});
  return values;
}

std::vector<NamedRule> AttentionSm90Pipelined::own_rules(const AttentionProblem& problem,
                                                         const DeviceInfo& device) const {
  const AttentionFacts facts = attention_facts(problem);
  const bool heads_alike =
      problem.bias && (problem.bias->batches == 1 || problem.bias->strides[0] == 0);
  const std::int64_t heads = problem.batch * problem.heads, sms = sms_of(device);
  std::vector<NamedRule> rules = {
      items_rule(problem, device),
      wgmma_steps_rule(),
      {"swap-AB tail: up to 8 beyond a multiple of 64",
       {"kSpareRows"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.swap_ab_rows || s.block_rows() < s.nq) return std::nullopt;
         return formatted("{} rows leave no more than {} over", s.nq, s.swap_ab_rows);
       }},
      {"copying warps bring a bias once where all work items of a CTA have the same one",
       {"kResident", "kWarps", "kBiasInRegisters", "kProducer", "kSpareRows"},
       [facts, heads_alike, sms,
        each = problem.heads](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.bias_in_registers) return std::nullopt;
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
      {"copying warps and several warpgroups take the whole SM",
       {"kWarps", "kMinCtas"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.warps == 4 || s.min_ctas == 1) return std::nullopt;
         return formatted("kMinCtas = {} with {} warps", s.min_ctas, s.warps);
       }}};
  append(rules, is_resident_ ? heads_rules(heads, sms) : streaming_rules(heads, sms));
  return rules;
}

}  // namespace

bool has_rounds_by_tensor_maps(const AttentionProblem& problem, const DeviceInfo& device,
                               std::int64_t rounds) {
  return !lacks_wgmma(device) && tensor_maps_fit(problem) &&
         row_blocks(problem) > rounds * sms_of(device);
}

const Family& attention_sm90_pipelined(bool is_resident) {
  static const AttentionSm90Pipelined streaming(false), resident(true);
  return is_resident ? resident : streaming;
}

}  // namespace vitune
