// generator/attention/sm90.cpp -- The families of forward_sm90.cuh: wgmma, each warpgroup copies
// what it needs.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"

namespace vitune {
namespace {

class AttentionSm90 final : public AttentionFamily {
 public:
  explicit AttentionSm90(bool is_resident) : AttentionFamily("sm90", is_resident) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    if (const auto why = AttentionFamily::refusal(problem, device)) return why;
    return lacks_wgmma(device);
  }
  bool is_of_one_architecture() const override { return true; }

 private:
  bool is_made_of(const Config& config) const override {
    return is_set(config, "kSwizzle") && !is_set(config, "kProducer");
  }
  Values values(const AttentionProblem& problem) const override;
  std::vector<NamedRule> own_rules(const AttentionProblem& problem,
                                   const DeviceInfo& device) const override;
};

// Warpgroups have four warps of one 16-row tile each, and queries in shared memory.
AttentionSm90::Values AttentionSm90::values(const AttentionProblem& problem) const {
  Values values = {
      {"kConstantKeys", {1}}, {"kSwizzle", swizzle_widths(problem)}, {"kQueryInRegisters", {0}}};
  if (is_resident_) {
    values.insert(values.end(), {{"kWarps", {4, 8, 12, 16}},
                                 {"kStages", {1, 2}},
                                 {"kHeadsPerCta", {1, 2, 4, 8}},
                                 {"kRowSplit", {1, 2, 4, 8, 16}},
                                 {"kPersistent", {0, 1}}});
    if (problem.bias) values.push_back({"kBiasInRegisters", {0, 1}});
  } else {
    values.insert(values.end(), {{"kWarps", {4, 8, 12}}, {"kStages", {2, 3}}});
  }
  return values;
}

std::vector<NamedRule> AttentionSm90::own_rules(const AttentionProblem& problem,
                                                const DeviceInfo& device) const {
  std::vector<NamedRule> rules = {rows_rule(), wide_steps_rule(), wgmma_steps_rule()};
  constexpr std::int64_t kRounds = 6;
  if (problem.nk >= 128 && has_rounds_by_tensor_maps(problem, device, kRounds)) {
    rules.push_back({"many rows and keys are for copies by tensor maps",
                     {"kResident"},
                     [blocks = row_blocks(problem)](const AttentionShape&) {
                       return formatted("{} blocks of 64 rows", blocks);
                     }});
  }
  if (!is_resident_) {
    rules.push_back(stages_rule());
    return rules;
  }
  append(rules, resident_rules(problem, device));
  append(rules, {{"several heads per CTA have one warpgroup each",
                  {"kWarps", "kHeadsPerCta"},
                  [](const AttentionShape& s) -> std::optional<std::string> {
                    if (s.heads_per_cta == 1 || s.warps == 4 * s.heads_per_cta) return std::nullopt;
                    return formatted("{} warps for {} heads", s.warps, s.heads_per_cta);
                  }},
                 {"warpgroups persist only to keep a bias",
                  {"kPersistent", "kBiasInRegisters"},
                  [](const AttentionShape& s) -> std::optional<std::string> {
                    if (!s.persistent || s.bias_in_registers) return std::nullopt;
                    return "kPersistent = 1 needs kBiasInRegisters = 1 where kSwizzle is set";
                  }}});
  return rules;
}

}  // namespace

std::optional<std::string> lacks_wgmma(const DeviceInfo& device) {
  if (device.cc_major == 9 && device.cc_minor == 0) return std::nullopt;
  return formatted("wgmma is an instruction of sm_90a alone, not of {}", device.arch());
}

const Family& attention_sm90(bool is_resident) {
  static const AttentionSm90 streaming(false), resident(true);
  return is_resident ? resident : streaming;
}

}  // namespace vitune
