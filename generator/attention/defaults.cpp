// generator/attention/defaults.cpp -- The config that serves a problem nobody has tuned yet.
//
// A list of configs in order of preference per class of problem; the first that is inside the space
// of the device wins. docs/lab/2026-11-21-defaults.md has the measurements behind the order.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "core/checked.h"
#include "generator/attention/default_forms.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Facts that divide problems into classes, beside the problem itself.
struct Load {
  std::int64_t sms;
  std::int64_t heads;   // of all batches
  std::int64_t blocks;  // of 64 rows

  Load(const AttentionProblem& problem, const DeviceInfo& device)
      : sms(sms_of(device)), heads(problem.batch * problem.heads), blocks(row_blocks(problem)) {}

  // True if CTAs of `rows` query rows are at most `each` per SM.
  bool at_most(std::int64_t each, std::int64_t rows, const AttentionProblem& problem) const {
    return heads * ceil_div(problem.nq, rows) <= each * sms;
  }
};

// The one head size above 16 that only a swizzle of 32 bytes fits: many small rows to copy, so that
// resident heads and windows gain nothing from warpgroups.
bool has_narrow_swizzle(const AttentionProblem& problem) { return problem.d == 48; }

// With work items evened out where that is of use.
void add_even(std::vector<Config>& list, Config config) {
  config.set("kEvenItems", 1);
  list.push_back(config);
  config.set("kEvenItems", 0);
  list.push_back(std::move(config));
}

// Few rows: where their heads leave SMs idle four warps share the keys of sixteen rows.
void prefer_few_rows(std::vector<Config>& list, const AttentionProblem& problem, const Load& load) {
  if (problem.nq > 16 || problem.nk < 128) return;
  const bool busy = load.heads >= 2 * load.sms || load.heads * problem.d >= 128 * load.sms;
  if (busy) list.push_back(streaming(1, 1, 32, 2));
  if (!busy && problem.nk <= 256) list.push_back(resident(1, equal_steps(problem.nk, 128), 1));
  for (const std::int64_t keys : {96, 64, 32}) {
    Config config = streaming(4, 1, keys, 2);
    config.set("kKeySplit", 4);
    list.push_back(std::move(config));
  }
}

// Windows and other heads of up to 64 rows and keys: CTAs of few rows while there are SMs to spare;
// then a warpgroup per head while all are at work at once. Beyond that see prefer_windows().
void prefer_few_windows(std::vector<Config>& list, const AttentionProblem& problem,
                        const Load& load) {
  if (problem.nk < 33 || problem.nk > 64 || problem.nq < 33 || problem.nq > 64) return;
  const std::int64_t keys = round_up(problem.nk, 8);
  if (load.heads <= load.sms / 2) {
    list.push_back(resident(1, keys, 4));
  } else if (load.heads <= load.sms) {
    list.push_back(resident(2, keys, 2));
  } else if (!has_narrow_swizzle(problem) &&
             (load.heads <= 6 * load.sms || (problem.d == 64 && !problem.bias))) {
    list.push_back(window(problem, 1, 1));
  }
}

// Up to 208 keys and few blocks of rows: all keys in one step as long as each CTA has an SM to
// itself, two steps of a warpgroup for up to three, the rows of a head in two CTAs for up to six.
void prefer_few_short(std::vector<Config>& list, const AttentionProblem& problem,
                      const Load& load) {
  if (problem.nk > kMostSharedStepKeys || problem.nq <= 16) return;
  if (problem.nk <= 64 && problem.nq <= 64) return;
  if (load.blocks <= load.sms) {
    if (load.at_most(1, 32, problem)) list.push_back(one_step(problem, 2));
    list.push_back(one_step(problem, 4));
  } else if (problem.nk > 64 && load.blocks <= 3 * load.sms) {
    list.push_back(warpgroups(problem, 4, equal_steps(problem.nk, 112, 16), 2));
  } else if (problem.nk > 144 && load.blocks <= 6 * load.sms && problem.d <= 64 &&
             !has_narrow_swizzle(problem) && !problem.bias) {
    list.push_back(window(problem, 1, 2));
  }
}

// More keys and few blocks of rows: a warpgroup and an SM for each; where blocks are up to two per
// SM, CTAs that share it, with as many keys per step as that leaves room for.
void prefer_few_long(std::vector<Config>& list, const AttentionProblem& problem,
                     const DeviceInfo& device, const Load& load) {
  if (problem.nk <= kMostSharedStepKeys || problem.nq <= 16 || problem.causal) return;
  const auto own_tiles = [&](std::int64_t warps, std::int64_t most) {
    list.push_back(warpgroups(problem, warps, equal_steps(problem.nk, most, 16), 2));
  };
  if (load.blocks <= load.sms) {
    own_tiles(4, problem.d > 64 ? 128 : 160);
  } else if (load.at_most(1, 128, problem) && problem.d > 96) {
    own_tiles(8, 128);
  } else if (load.blocks <= 2 * load.sms) {
    // Tiles of a bias are as wide as the steps.
    for (const std::int64_t keys : {112, 80, 48}) {
      if (problem.bias && keys > 48) continue;
      for (const std::int64_t stages : {3, 2}) {
        Config config = wide_swizzle(problem, mapped(problem, 4, keys, stages));
        config.set("kSpareRows", 0);
        if (2 * AttentionShape(problem, config).shared_bytes() <= device.shared_per_sm) {
          list.push_back(std::move(config));
        }
      }
    }
  } else if (load.blocks <= 3 * load.sms && problem.nk <= 300) {
    own_tiles(4, 128);
  }
}

// Many rows and up to 128 keys (pooled keys): a head's rows in as many CTAs as fill the device.
void prefer_pooled_keys(std::vector<Config>& list, const AttentionProblem& problem,
                        const Load& load) {
  if (problem.nk < 33 || problem.nk >= 128 || problem.nq <= 128 || load.blocks <= load.sms) return;
  std::int64_t split = 1;
  while (split < 16 && load.heads * split < 3 * load.sms) split *= 2;
  if (split == 1) return;
  for (const std::int64_t stages : {2, 1}) list.push_back(window(problem, stages, split));
}

// Windows and other short heads by tensor maps: all keys in one step, a warpgroup per head. A bias
// that all batches share stays.
void prefer_windows(std::vector<Config>& list, const AttentionProblem& problem, const Load& load) {
  if (problem.nk < 33 || problem.nk >= 128 || problem.nq < 33 || problem.nq > 128) return;
  if (load.heads < 64 || has_narrow_swizzle(problem)) return;
  Config config = mapped(problem, 4, round_up(problem.nk, 8), 1);
  config.set("kResident", 1);
  config.set("kSpareRows", 0);
  if (problem.bias) {
    config.set("kBiasInRegisters", 1);
    list.push_back(config);
    config.set("kBiasInRegisters", 0);
  } else if (load.heads > 16 * load.sms) {
    Config ahead = config;  // the next head's tiles
    ahead.set("kStages", 2);
    ahead.set("kValuesFirst", 1);
    list.push_back(std::move(ahead));
  }
  list.push_back(std::move(config));
}

// As wide as three warpgroups have registers for. Where rows are many, a swap-AB tail saves little.
Config widest_step(const AttentionProblem& problem) {
  const bool has_tail = useful_swap_ab_rows(problem) > 0 && problem.nq < 800;
  const std::int64_t keys = problem.d > 96 ? 96
                            : has_tail     ? (problem.bias ? 112 : 128)
                            : problem.d > 64 || problem.bias || problem.dropout != 0 ? 128
                                                                                     : 160;
  Config config = wide_swizzle(problem, mapped(problem, 12, keys, 2));
  if (!has_tail) config.set("kSpareRows", 0);
  return config;
}

// A bias that all batches share, and as many warpgroups as a head has blocks of rows: it stays.
void prefer_kept_bias(std::vector<Config>& list, const AttentionProblem& problem,
                      const Load& load) {
  if (!problem.bias || problem.nk < 128 || problem.d > 64) return;
  if (load.heads <= 2 * load.sms) return;  // read for too few heads to be worth a start
  const std::int64_t keys =
      problem.nk <= 144 ? round_up(problem.nk, 8) : equal_steps(problem.nk, 128, 16);
  for (const std::int64_t stages : {2, 1}) {
    Config config = mapped(problem, 12, keys, stages);
    const std::int64_t blocks = ceil_div(AttentionShape(problem, config).block_rows(), kGroupRows);
    if (blocks < 3 || blocks > 4) return;
    config.set("kWarps", 4 * blocks);
    config.set("kResident", 1);
    config.set("kBiasInRegisters", 1);
    list.push_back(std::move(config));
  }
}

// By tensor maps: short rows in one step of all keys, K and V resident; longer ones in wide steps.
void prefer_mapped(std::vector<Config>& list, const AttentionProblem& problem, const Load& load) {
  if (problem.nk < 128 || problem.nq < 128) return;
  prefer_kept_bias(list, problem, load);
  // Heads that begin at odd multiples of 16 bytes are better off in wider rows, and so in steps.
  const bool odd = problem.d % 16 == 8 && problem.d > 64;
  if (problem.nk <= kMostSharedStepKeys && !problem.causal) {
    if (odd) list.push_back(wide_swizzle(problem, mapped(problem, 12, 112, 2)));
    for (const std::int64_t stages : {2, 1}) {
      if (odd || has_narrow_swizzle(problem) || (stages == 1 && problem.d <= 64)) continue;
      Config config = mapped(problem, problem.d <= 64 ? 12 : 8, round_up(problem.nk, 8), stages);
      config.set("kResident", 1);
      list.push_back(std::move(config));
    }
  }
  // As many keys in one step as two warpgroups have registers for; items of half a head are ahead
  // of whole ones in loading.
  if (problem.nk > kMostSharedStepKeys && problem.nk <= kMostStepKeys && problem.d <= 64 &&
      !problem.bias && !problem.causal) {
    list.push_back(mapped(problem, 8, round_up(problem.nk, 8), 2));
  }
  if (problem.nk <= 416) {
    // Beside a bias there is little else to wait for: three warpgroups.
    if (problem.bias) add_even(list, wide_swizzle(problem, mapped(problem, 12, 112, 2)));
    const std::int64_t half = round_up(ceil_div(problem.nk, 2), 16);
    for (const std::int64_t stages : {3, 2}) {
      list.push_back(wide_swizzle(problem, mapped(problem, 8, half, stages)));
    }
  }
  add_even(list, widest_step(problem));
  for (const std::int64_t stages : {3, 2}) list.push_back(mapped(problem, 8, 128, stages));
}

// Long rows on a device with wgmma: three warpgroups where their registers suffice.
void prefer_pipelined(std::vector<Config>& list, const AttentionProblem& problem) {
  if (problem.nk <= 300 || problem.nq < 128) return;
  const bool plain = !problem.bias && !problem.mask;
  if (problem.d > 96) {
    list.push_back(pipelined(problem, 12, 96, 2));
  } else if (problem.d > 64) {
    if (plain) list.push_back(pipelined(problem, 12, 128, 2));
  } else if (plain && problem.nq > 640) {
    list.push_back(pipelined(problem, 12, 160, 2));
  } else if (plain) {
    list.push_back(pipelined(problem, 8, 160, 3));
  }
  for (const std::int64_t stages : {3, 2}) list.push_back(pipelined(problem, 8, 128, stages));
}

std::vector<Config> preferences(const AttentionProblem& problem, const DeviceInfo& device) {
  std::vector<Config> list;
  const Load load(problem, device);
  prefer_few_rows(list, problem, load);
  prefer_few_windows(list, problem, load);
  prefer_few_short(list, problem, load);
  // Most of these are outside the space of devices without wgmma.
  prefer_few_long(list, problem, device, load);
  prefer_pooled_keys(list, problem, load);
  prefer_windows(list, problem, load);
  prefer_mapped(list, problem, load);
  prefer_pipelined(list, problem);
  if (problem.nk <= 300 && problem.nq <= 4096 && load.heads >= 64) {
    for (std::int64_t warps : {4, 2, 1})
      list.push_back(resident(warps, equal_steps(problem.nk, 128), 1));
  }
  const std::int64_t all = round_up(problem.nk, problem.dropout != 0 ? 16 : 8);
  const std::int64_t narrow = std::min<std::int64_t>(64, all);
  if (problem.d <= 64 && problem.nq >= 512) list.push_back(streaming(4, 2, narrow, 2));
  for (std::int64_t warps : {4, 2, 1}) {
    list.push_back(streaming(warps, 1, narrow, 2));
    list.push_back(streaming(warps, 1, narrow, 1));
    list.push_back(streaming(warps, 1, std::min<std::int64_t>(32, all), 1));
  }
  return list;
}

// Leaves room for as many CTAs per SM as shared memory holds, unless that would starve a warp of
// registers: more CTAs hide the latency of each other's loads.
Config with_room(Config config, const ParameterSpace& space, const AttentionProblem& problem,
                 const DeviceInfo& device) {
  constexpr std::int64_t kComfort =
      28;  // registers beyond the live ones for addresses and operands
  const AttentionShape shape(problem, config);
  for (std::int64_t ctas : {8, 6, 5, 4, 3, 2}) {
    const std::int64_t registers =
        device.registers_per_sm / (round_up(shape.threads(), 128) * ctas);
    if (shape.live_registers() + kComfort > registers) continue;
    Config roomy = config;
    roomy.set("kMinCtas", ctas);
    if (!space.explain(roomy)) return roomy;
  }
  return config;
}

}  // namespace

std::vector<Config> default_attention_configs(const AttentionProblem& problem,
                                              const DeviceInfo& device,
                                              const ParameterSpace& space) {
  std::vector<Config> chosen;
  for (const Config& config : preferences(problem, device)) {
    if (space.explain(config)) continue;
    // A streaming CTA hides latency with its own stages; more of them only gain from fewer
    // registers.
    Config best = config.at("kResident") ? with_room(config, space, problem, device) : config;
    if (std::find(chosen.begin(), chosen.end(), best) == chosen.end()) {
      chosen.push_back(std::move(best));
    }
  }
  return chosen;
}

std::vector<Config> default_attention_configs(const AttentionProblem& problem,
                                              const DeviceInfo& device) {
  return default_attention_configs(problem, device, attention_space(problem, device));
}

Config default_attention_config(const AttentionProblem& problem, const DeviceInfo& device) {
  return default_config(*ProblemPtr(problem), device);
}

}  // namespace vitune
