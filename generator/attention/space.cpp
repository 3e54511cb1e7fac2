// generator/attention/space.cpp -- The attention kernels' tunables, with the values of all
// families.
//
// Adding a parameter: one entry in attention_parameters(), one in templates/attention/config.cuh,
// and the code that reads it (docs/add_a_parameter.md).
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

// Steps of 32 to 128 keys, and the widths that cut this key count into one to four equal steps.
std::vector<std::int64_t> key_steps(std::int64_t nk) {
  std::set<std::int64_t> widths;
  const std::int64_t all = round_up(nk, 8);
  for (std::int64_t width : {32, 48, 64, 96, 112, 128, 160, 176})
    widths.insert(std::min<std::int64_t>(width, all));
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    for (const std::int64_t multiple : {8, 16}) {  // wgmma takes several steps in sixteens
      const std::int64_t width = round_up(ceil_div(nk, steps), multiple);
      if (width >= 32 && width <= kMostStepKeys) widths.insert(std::min(width, all));
    }
  }
  return {widths.begin(), widths.end()};
}

}  // namespace

// Panel widths in bytes for rows of this head size: the widest that fits without padding, and wider
// ones that pad by a quarter at most, or by more where heads begin at odd multiples of 16 bytes:
// those are slow to read, the slower the narrower. Wide panels have fewer bank conflicts to avoid
// when copied.
std::vector<std::int64_t> panel_widths(const AttentionProblem& problem) {
  const std::int64_t head_dim = problem.d;
  const std::int64_t row = round_up(2 * head_dim, 32);
  std::vector<std::int64_t> widths;
  for (const std::int64_t width : {32, 64, 128}) {
    const std::int64_t padded = round_up(row, width);
    const std::int64_t unaligned = head_dim % 16 == 8 ? 2 * row - 64 : 0;
    if (padded > std::max(row + row / 4, unaligned)) continue;
    if (padded == row) widths.clear();
    widths.push_back(width);
  }
  return widths;
}

std::vector<Parameter> attention_parameters(const AttentionProblem& problem) {
  const auto numbers = [](std::string name, std::vector<std::int64_t> values, std::string doc) {
    return Parameter{.name = std::move(name), .values = std::move(values), .doc = std::move(doc)};
  };
  // These there have always been, and no value of theirs means "without it".
  const auto needed = [&](std::string name, std::vector<std::int64_t> values, std::string doc) {
    Parameter parameter = numbers(std::move(name), std::move(values), std::move(doc));
    parameter.needed = true;
    return parameter;
  };
  std::vector<std::int64_t> swizzles = panel_widths(problem);
  swizzles.insert(swizzles.begin(), 0);
  return {
      numbers("kResident", {0, 1},
              "0: K and V stream through; 1: all of a head's K and V are resident"),
      needed("kConstantKeys", {0, 1}, "1: the token count is a constant of the kernel"),
      numbers("kSwizzle", swizzles,
              "0: padded rows and mma.sync; else bytes per panel row, and wgmma (sm_90a)"),
      // Here, because many rules read them and are decided when the last they read is.
      numbers("kProducer", {0, 1, 2},
              "1: four warps more do nothing but copy (wgmma only); 2: by tensor maps (TMA)"),
      numbers("kSpareRows", {0, 8},
              "8: a warpgroup more takes up to 8 rows beyond a multiple of 64 (kProducer = 2)"),
      numbers("kValuesFirst", {0, 1}, "1: V is waited for before a softmax (kProducer), 0: behind"),
      numbers("kEvenItems", {0, 1},
              "1: the last work items have fewer rows, so that CTAs end together (kProducer)"),
      numbers("kKeySplit", {1, 2, 4, 8},
              "warps that share the keys of a row (streaming, mma.sync)"),
      needed("kWarps", {1, 2, 4, 8, 12, 16}, "warps per CTA"),
      numbers("kRowTiles", {1, 2}, "16-row tiles per warp"),
      needed("kBlockN", key_steps(problem.nk), "keys per step"),
      numbers("kStages", {1, 2, 3, 4},
              "K/V tiles (streaming, kProducer) or query tiles (resident) in flight"),
      numbers("kQueryInRegisters", {0, 1}, "1: query fragments stay in registers"),
      numbers("kHeadsPerCta", {1, 2, 4, 8}, "heads (windows) a resident CTA works on at once"),
      numbers("kRowSplit", {1, 2, 4, 8, 16}, "CTAs that share the rows of a head (resident)"),
      numbers("kMinCtas", {1, 2, 3, 4, 5, 6, 8, 12, 16},
              "CTAs per SM the compiler leaves room for"),
      numbers("kPersistent", {0, 1}, "1: CTAs walk over many work items"),
      numbers("kBiasInRegisters", {0, 1}, "1: a warp keeps its rows' bias for the next item"),
  };
}

std::vector<Parameter> AttentionFamily::parameters(const Problem& problem) const {
  const AttentionProblem& p = attention_of(problem);
  Values own = values(p);
  own.push_back({"kResident", {is_resident_ ? 1 : 0}});
  return with_values(attention_parameters(p), own);
}

std::vector<Constraint> AttentionFamily::rules(const Problem& problem,
                                               const DeviceInfo& device) const {
  const AttentionProblem& p = attention_of(problem);
  const AttentionShape shape(p, Config());
  std::vector<NamedRule> named = resource_rules(device);
  append(named, own_rules(p, device));
  std::vector<Constraint> all;
  for (NamedRule& rule : named) {
    all.push_back(
        Constraint{.rule = rule.text,
                   .violation = [shape, check = rule.violation](
                                    const Config& config) { return check(shape.with(config)); },
                   .needs = rule.needs});
  }
  return all;
}

ParameterSpace attention_space(const AttentionProblem& problem, const DeviceInfo& device) {
  return attention().space(*ProblemPtr(problem), device);
}

}  // namespace vitune
