// generator/attention/defaults.cpp -- The config that serves a problem nobody has tuned yet.
//
// A list of configs in order of preference per class of problem; the first that is inside the space
// of the device wins. docs/kernels.md has the measurements behind the order.
#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

Config streaming(std::int64_t warps, std::int64_t row_tiles, std::int64_t block_n,
                 std::int64_t stages) {
  return {{"kResident", 0},         {"kConstantKeys", 0}, {"kWarps", warps},
          {"kRowTiles", row_tiles}, {"kBlockN", block_n}, {"kStages", stages},
          {"kQueryInRegisters", 1}, {"kHeadsPerCta", 1},  {"kRowSplit", 1},
          {"kMinCtas", 1},          {"kPersistent", 0},   {"kBiasInRegisters", 0},
          {"kSwizzle", 0},          {"kProducer", 0},     {"kValuesFirst", 0},
          {"kSpareRows", 0},        {"kKeySplit", 1},     {"kEvenItems", 0}};
}

Config resident(std::int64_t warps, std::int64_t block_n, std::int64_t row_split) {
  Config config = streaming(warps, 1, block_n, 1);
  config.set("kResident", 1);
  config.set("kConstantKeys", 1);
  config.set("kRowSplit", row_split);
  return config;
}

// Fewest equal steps of at most `most` keys.
std::int64_t equal_steps(std::int64_t nk, std::int64_t most) {
  return round_up(ceil_div(nk, ceil_div(nk, most)), 8);
}

// Warpgroups with copying warps; panels as wide as the head size allows.
Config pipelined(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
                 std::int64_t stages) {
  Config config = streaming(warps, 1, block_n, stages);
  config.set("kConstantKeys", 1);
  config.set("kQueryInRegisters", 0);
  config.set("kPersistent", 1);
  config.set("kProducer", 1);
  config.set("kSwizzle", problem.d % 64 == 0 ? 128 : problem.d > 16 ? 64 : 32);
  return config;
}

// Warpgroups whose tiles come by tensor maps, and one more for the rows beyond a multiple of 64
// where they are few.
Config mapped(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
              std::int64_t stages) {
  Config config = pipelined(problem, warps, block_n, stages);
  config.set("kProducer", 2);
  config.set("kSpareRows", useful_spare_rows(problem));
  return config;
}

// Of steps whose tiles may be twice as large: heads that begin at odd multiples of 16 bytes come
// faster in few wide rows.
Config wide_panels(const AttentionProblem& problem, Config config) {
  if (problem.d % 16 == 8 && problem.d > 64) config.set("kSwizzle", 128);
  return config;
}

// With work items evened out where that is of use.
void add_even(std::vector<Config>& list, Config config) {
  config.set("kEvenItems", 1);
  list.push_back(config);
  config.set("kEvenItems", 0);
  list.push_back(std::move(config));
}

// As wide as three warpgroups have registers for.
std::int64_t widest_step(const AttentionProblem& problem) {
  if (problem.d > 96) return 96;
  if (useful_spare_rows(problem) > 0) return problem.bias ? 112 : 128;
  return problem.d > 64 || problem.bias ? 128 : 160;
}

// Windows and other short heads by tensor maps: all keys in one step, a warpgroup per head. A bias
// that all batches share stays.
void prefer_windows(std::vector<Config>& list, const AttentionProblem& problem) {
  if (problem.nk < 33 || problem.nk >= 128 || problem.nq < 33 || problem.nq > 128) return;
  if (problem.batch * problem.heads < 64) return;
  Config config = mapped(problem, 4, round_up(problem.nk, 8), 1);
  config.set("kResident", 1);
  config.set("kSpareRows", 0);
  if (problem.bias) {
    config.set("kBiasInRegisters", 1);
    list.push_back(config);
    config.set("kBiasInRegisters", 0);
  }
  list.push_back(config);
}

// By tensor maps: short rows in one step of all keys, K and V resident; longer ones in wide steps.
void prefer_mapped(std::vector<Config>& list, const AttentionProblem& problem) {
  if (problem.nk < 128 || problem.nq < 128) return;
  if (problem.nk <= kMostSharedStepKeys && !problem.causal) {
    Config config = mapped(problem, problem.d <= 64 ? 12 : 8, round_up(problem.nk, 8), 2);
    config.set("kResident", 1);
    list.push_back(config);
  }
  // As many keys in one step as two warpgroups have registers for; items of half a head are ahead
  // of whole ones in loading.
  if (problem.nk > kMostSharedStepKeys && problem.nk <= kMostStepKeys && problem.d <= 64 &&
      !problem.bias && !problem.causal) {
    list.push_back(mapped(problem, 8, round_up(problem.nk, 8), 2));
  }
  if (problem.nk <= 416) {
    // Beside a bias there is little else to wait for: three warpgroups.
    if (problem.bias) add_even(list, mapped(problem, 12, 112, 2));
    const std::int64_t half = round_up(ceil_div(problem.nk, 2), 16);
    for (const std::int64_t stages : {3, 2}) {
      list.push_back(wide_panels(problem, mapped(problem, 8, half, stages)));
    }
  }
  add_even(list, wide_panels(problem, mapped(problem, 12, widest_step(problem), 2)));
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

// Few rows, many keys: four warps share the keys of sixteen rows.
void prefer_split_keys(std::vector<Config>& list, const AttentionProblem& problem) {
  if (problem.nq > 16 || problem.nk < 128) return;
  Config config = streaming(4, 1, 32, 2);
  config.set("kKeySplit", 4);
  list.push_back(config);
}

std::vector<Config> preferences(const AttentionProblem& problem) {
  std::vector<Config> list;
  const std::int64_t heads = problem.batch * problem.heads;
  // The first three are outside the space of devices without wgmma.
  prefer_windows(list, problem);
  prefer_mapped(list, problem);
  prefer_pipelined(list, problem);
  if (problem.nk <= 300 && problem.nq <= 4096 && heads >= 64) {
    for (std::int64_t warps : {4, 2, 1})
      list.push_back(resident(warps, equal_steps(problem.nk, 128), 1));
  }
  prefer_split_keys(list, problem);
  const std::int64_t narrow = std::min<std::int64_t>(64, round_up(problem.nk, 8));
  if (problem.d <= 64 && problem.nq >= 512) list.push_back(streaming(4, 2, narrow, 2));
  for (std::int64_t warps : {4, 2, 1}) {
    list.push_back(streaming(warps, 1, narrow, 2));
    list.push_back(streaming(warps, 1, narrow, 1));
    list.push_back(streaming(warps, 1, std::min<std::int64_t>(32, round_up(problem.nk, 8)), 1));
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
                                              const DeviceInfo& device) {
  const ParameterSpace space = attention_space(problem, device);
  std::vector<Config> chosen;
  for (const Config& config : preferences(problem)) {
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

Config default_attention_config(const AttentionProblem& problem, const DeviceInfo& device) {
  const std::vector<Config> configs = default_attention_configs(problem, device);
  if (!configs.empty()) return configs.front();
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("no kernel for '{}' fits a device with {} bytes of shared memory per block",
                  problem.text(), device.shared_per_block));
}

}  // namespace vitune
