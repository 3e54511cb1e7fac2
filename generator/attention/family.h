// generator/attention/family.h -- AttentionFamily: what the families of attention share.
//
// Each of the three templates is two families, by its schedule: keys and values stream through, or
// all of a head's are resident.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/attention/problem.h"
#include "generator/attention/rules.h"
#include "generator/family.h"

namespace vitune {

class AttentionFamily : public Family {
 public:
  std::string_view name() const final { return name_; }
  bool owns(const Config& config) const final {
    return is_made_of(config) && is_set(config, "kResident") == is_resident_;
  }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override;
  std::vector<Parameter> parameters(const Problem& problem) const final;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const final;
  // Those of the operator's that are its own: which family comes first follows from the problem.
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const final;
  ConfigWords words(const Problem& problem, const Config& config) const final;
  std::string templates() const final;
  std::string source(const Problem& problem, const Config& config) const final;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const final;
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts, const DeviceInfo& device) const final;
  // A few spilled values live outside the loops and cost nothing that could be measured.
  int harmless_spill_bytes() const override { return 64; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const final;
  bool reads_tensor_maps(const Config& config) const final;

 protected:
  // "sm80": of templates/attention/forward_sm80.cuh.
  AttentionFamily(std::string_view template_name, bool is_resident);

  using Values = std::vector<std::pair<std::string_view, std::vector<std::int64_t>>>;
  static bool is_set(const Config& config, std::string_view name) {
    return config.find(name).value_or(0) != 0;
  }
  const bool is_resident_;

 private:
  // True if there is a template with dropout: forward_<template>_dropout.cuh.
  virtual bool has_dropout() const { return false; }
  // True if the config's kernel is made of the family's template.
  virtual bool is_made_of(const Config& config) const = 0;
  // The values of its tunables, but those of all families (space.cpp); it does without the others.
  virtual Values values(const AttentionProblem& problem) const = 0;
  // Besides those of all families.
  virtual std::vector<NamedRule> own_rules(const AttentionProblem& problem,
                                           const DeviceInfo& device) const = 0;

  const std::string_view template_;
  const std::string name_;
};

// Where a call's tensors go in what kernels are handed.
std::vector<PointerSlot> attention_slots();

// Widths of the swizzle of wgmma's tiles, in bytes.
std::vector<std::int64_t> swizzle_widths(const AttentionProblem& problem);
// Why a device has no wgmma, or nothing.
std::optional<std::string> lacks_wgmma(const DeviceInfo& device);
// True if wgmma beside copies by tensor maps can serve the problem on the device, and has more than
// `rounds` blocks of 64 rows for each SM. There the families without them never came within 10 % of
// it (docs/lab/2026-11-28-narrower-spaces.md).
bool has_rounds_by_tensor_maps(const AttentionProblem& problem, const DeviceInfo& device,
                               std::int64_t rounds);

// mma.sync (sm80.cpp), wgmma (sm90.cpp), wgmma beside warps that do nothing but copy
// (sm90_pipelined.cpp): each streaming and resident.
const Family& attention_sm80(bool is_resident);
const Family& attention_sm90(bool is_resident);
const Family& attention_sm90_pipelined(bool is_resident);

}  // namespace vitune
