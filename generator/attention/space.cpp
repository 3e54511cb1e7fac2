// generator/attention/space.cpp -- The attention kernels' tunables and the rules between them.
//
// Adding a parameter: one entry in attention_parameters(), one in templates/attention/config.cuh,
// and the code that reads it (docs/add_a_parameter.md).
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/rules.h"

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

// Panel widths in bytes for rows of this head size: the widest that fits without padding, and wider
// ones that pad by a quarter at most, or by more where heads begin at odd multiples of 16 bytes:
// those are slow to read, the slower the narrower. Wide panels have fewer bank conflicts to avoid
// when copied.
std::vector<std::int64_t> panel_widths(std::int64_t head_dim) {
  const std::int64_t row = round_up(2 * head_dim, 32);
  std::vector<std::int64_t> widths = {0};
  for (const std::int64_t width : {32, 64, 128}) {
    const std::int64_t padded = round_up(row, width);
    const std::int64_t unaligned = head_dim % 16 == 8 ? 2 * row - 64 : 0;
    if (padded > std::max(row + row / 4, unaligned)) continue;
    if (padded == row) widths = {0};
    widths.push_back(width);
  }
  return widths;
}

std::vector<NamedRule> schedule_rules() {
  return {
      {"resident keys need a constant token count",
       {"kResident", "kConstantKeys"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.resident && !s.constant_keys) return "kResident = 1 needs kConstantKeys = 1";
         return std::nullopt;
       }},
      {"heads per CTA and row split belong to the resident schedule",
       {"kResident", "kHeadsPerCta", "kRowSplit"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.resident && (s.heads_per_cta > 1 || s.row_split > 1)) {
           return "kHeadsPerCta and kRowSplit must be 1 where kResident = 0";
         }
         return std::nullopt;
       }},
      {"the resident schedule has one or two query tiles; two only with queries in registers",
       {"kSwizzle", "kResident", "kStages", "kQueryInRegisters", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.producer) return std::nullopt;  // its stages are heads
         if (s.resident && s.stages > 2) return formatted("kStages = {} > 2", s.stages);
         if (s.resident && s.stages == 2 && !s.query_in_registers && !s.warpgroups()) {
           return "kStages = 2 needs kQueryInRegisters = 1";
         }
         return std::nullopt;
       }},
      {"persistent CTAs belong to the resident schedule and to copying warps",
       {"kResident", "kPersistent", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.persistent || s.resident || s.producer) return std::nullopt;
         return "kPersistent = 1 needs kResident = 1: a streaming CTA keeps nothing for its next "
                "item";
       }},
      {"queries are read from shared memory again only where registers are short",
       {"kSwizzle", "kRowTiles", "kBlockN", "kQueryInRegisters"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.query_in_registers || s.warpgroups() || s.live_registers() >= 88)
           return std::nullopt;
         return formatted("{} live registers leave room for the queries", s.live_registers());
       }},
      {"warps are split evenly between the heads of a CTA",
       {"kWarps", "kHeadsPerCta"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.warps % s.heads_per_cta == 0) return std::nullopt;
         return formatted("{} warps cannot be split between {} heads", s.warps, s.heads_per_cta);
       }},
      {"more stages than steps of keys, or four of them, are of use only to copying warps",
       {"kResident", "kStages", "kBlockN", "kProducer", "kKeySplit"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.producer) return std::nullopt;
         if (s.stages > 3) return formatted("kStages = {} needs kProducer", s.stages);
         if (s.resident || s.stages <= std::max<std::int64_t>(s.rounds(), 1)) return std::nullopt;
         return formatted("{} stages for {} steps", s.stages, s.rounds());
       }},
  };
}

// Warps that share the keys of a row (key_split.cuh).
std::vector<NamedRule> key_split_rules(std::int64_t heads, const DeviceInfo& device) {
  const std::int64_t sms = sms_of(device);
  return {
      {"keys are split in the streaming schedule on mma.sync",
       {"kResident", "kSwizzle", "kKeySplit"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1 || (!s.resident && !s.warpgroups())) return std::nullopt;
         return "kKeySplit needs kResident = 0 and kSwizzle = 0";
       }},
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
       {"kResident", "kSwizzle", "kKeySplit", "kWarps", "kRowTiles", "kBlockN"},
       [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
         if (s.key_split == 1) return std::nullopt;
         if (s.steps() < s.key_split) return formatted("only {} steps of keys", s.steps());
         if (s.row_warps() > 0 && s.items(heads) <= 8 * sms) return std::nullopt;
         return "there are rows enough for all warps";
       }},
      {"what shares of keys hand over fits into the tiles of keys and values",
       {"kSwizzle", "kKeySplit", "kWarps", "kBlockN", "kStages"},
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

// What only the warpgroup kernels can do, and what they cannot.
std::vector<NamedRule> warpgroup_rules(const DeviceInfo& device) {
  const bool hopper = device.cc_major == 9 && device.cc_minor == 0;
  return {
      {"wgmma is an instruction of sm_90a alone",
       {"kSwizzle"},
       [hopper, arch = device.arch()](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.warpgroups() || hopper) return std::nullopt;
         return formatted("kSwizzle = {} on {}", s.swizzle, arch);
       }},
      {"warpgroups have four warps of one 16-row tile each, and queries in shared memory",
       {"kSwizzle", "kWarps", "kRowTiles", "kQueryInRegisters"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.warpgroups()) {
           if (s.warps == 12) return "kWarps = 12 is three warpgroups: kSwizzle must not be 0";
           return std::nullopt;
         }
         if (s.warps % 4 != 0) return formatted("{} warps are no whole warpgroups", s.warps);
         if (s.row_tiles != 1 || s.query_in_registers) {
           return "kRowTiles must be 1 and kQueryInRegisters 0 where kSwizzle is set";
         }
         return std::nullopt;
       }},
      {"several heads per CTA have one warpgroup each",
       {"kSwizzle", "kWarps", "kHeadsPerCta"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.warpgroups() || s.heads_per_cta == 1 || s.warps == 4 * s.heads_per_cta)
           return std::nullopt;
         return formatted("{} warps for {} heads", s.warps, s.heads_per_cta);
       }},
      {"warpgroups know the token count, and persist only to keep a bias",
       {"kSwizzle", "kConstantKeys", "kPersistent", "kBiasInRegisters", "kProducer"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.warpgroups()) return std::nullopt;
         if (!s.constant_keys) return "kConstantKeys must be 1 where kSwizzle is set";
         if (s.persistent && !s.bias_in_registers && !s.producer) {
           return "kPersistent = 1 needs kBiasInRegisters = 1 where kSwizzle is set";
         }
         return std::nullopt;
       }},
      {"warpgroups take keys in steps of 16, several stages of them, or all at once",
       {"kSwizzle", "kResident", "kBlockN", "kStages"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.warpgroups()) return std::nullopt;
         if (s.block_n % 16 != 0 && (s.steps() > 1 || !s.resident)) {
           return formatted("{} steps of {} keys", s.steps(), s.block_n);
         }
         if (!s.resident && s.stages < 2) return "kStages must be 2 or more where kResident = 0";
         return std::nullopt;
       }},
  };
}

std::vector<NamedRule> bias_rules(bool has_bias) {
  return {
      {"a bias stays in registers only from one window to the next of a persistent CTA",
       {"kResident", "kBlockN", "kWarps", "kRowTiles", "kHeadsPerCta", "kRowSplit", "kPersistent",
        "kBiasInRegisters", "kProducer"},
       [has_bias](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.bias_in_registers) return std::nullopt;
         if (!has_bias) return "there is no bias";
         if (!s.persistent) return "kBiasInRegisters = 1 needs kPersistent = 1";
         if (s.producer) return std::nullopt;  // it has rules of its own
         if (s.steps() > 1) return formatted("{} steps of keys; it takes one", s.steps());
         if (!s.one_pass()) return formatted("{} rows per pass for {}", s.block_m(), s.nq);
         return std::nullopt;
       }},
  };
}

std::vector<NamedRule> work_rules(std::int64_t heads, const DeviceInfo& device) {
  const std::int64_t sms = sms_of(device);
  return {
      {"every warp of a CTA has rows to work on",
       {"kResident", "kWarps", "kRowTiles", "kHeadsPerCta", "kRowSplit", "kProducer", "kKeySplit"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.producer && s.resident) return std::nullopt;  // it goes on to the next head
         const std::int64_t tiles = ceil_div(s.nq, s.warp_rows());
         const std::int64_t warps = s.row_warps() * s.row_split;
         if (warps <= tiles || warps == 1) return std::nullopt;
         // A streaming CTA of few warps also loads; half of them may lack rows.
         if (!s.resident && warps <= 2 * tiles) return std::nullopt;
         return formatted("{} warps for {} tiles of {} rows", warps, tiles, s.warp_rows());
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
      {"persistent CTAs need more work items than SMs",
       {},
       [heads, sms](const AttentionShape& s) -> std::optional<std::string> {
         if (!s.persistent || (s.producer && s.items(heads) >= sms) || s.items(heads) > 2 * sms)
           return std::nullopt;
         return formatted("{} items for {} SMs", s.items(heads), sms);
       }},
      {"sixteen warps only where they share out several heads or a long resident head",
       {"kResident", "kWarps"},
       [](const AttentionShape& s) -> std::optional<std::string> {
         if (s.warps < 16 || s.resident) return std::nullopt;
         return "kWarps = 16 is for the resident schedule";
       }},
  };
}

std::vector<NamedRule> resource_rules(const DeviceInfo& device) {
  return {
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

std::vector<Constraint> constraints(const AttentionProblem& problem, const DeviceInfo& device) {
  std::vector<Constraint> all;
  const AttentionShape shape(problem, Config());
  const auto add = [&](std::vector<NamedRule> rules) {
    for (NamedRule& rule : rules) {
      all.push_back(
          Constraint{.rule = rule.text,
                     .violation = [shape, check = rule.violation](
                                      const Config& config) { return check(shape.with(config)); },
                     .needs = rule.needs});
    }
  };
  add(schedule_rules());
  add(key_split_rules(problem.batch * problem.heads, device));
  add(warpgroup_rules(device));
  add(producer_rules(problem, device));
  add(work_rules(problem.batch * problem.heads, device));
  add(resource_rules(device));
  add(bias_rules(problem.bias.has_value()));
  return all;
}

}  // namespace

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
  return {
      numbers("kResident", {0, 1},
              "0: K and V stream through; 1: all of a head's K and V are resident"),
      needed("kConstantKeys", {0, 1}, "1: the token count is a constant of the kernel"),
      numbers("kSwizzle", panel_widths(problem.d),
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

ParameterSpace attention_space(const AttentionProblem& problem, const DeviceInfo& device) {
  return ParameterSpace(attention_parameters(problem), constraints(problem, device));
}

}  // namespace vitune
