// generator/attention/default_forms.cpp -- Configs of each form, as defaults begin with them.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/default_forms.h"

#include "core/checked.h"
#include "generator/attention/facts.h"

namespace vitune {
namespace {

// The width of the swizzle in bytes: the widest that the head size fills.
std::int64_t swizzle_bytes(const AttentionProblem& problem) {
  if (problem.d % 64 == 0 || problem.d == 56 || problem.d == 120) return 128;
  return problem.d <= 16 || problem.d == 48 ? 32 : 64;
}

}  // namespace

std::int64_t equal_steps(std::int64_t nk, std::int64_t most, std::int64_t unit) {
  return round_up(ceil_div(nk, ceil_div(nk, most)), unit);
}

Config streaming(std::int64_t warps, std::int64_t row_tiles, std::int64_t block_n,
                 std::int64_t stages) {
  AttentionTunables form;
  form.warps = warps;
  form.row_tiles = row_tiles;
  form.block_n = block_n;
  form.stages = stages;
  Config config;
  for (const AttentionTunable& tunable : kAttentionTunables) {
    config.set(tunable.name, form.*tunable.value);
  }
  return config;
}

Config one_step(const AttentionProblem& problem, std::int64_t warps) {
  Config config = streaming(warps, 1, round_up(problem.nk, 8), 1);
  config.set("kConstantKeys", 1);
  return config;
}

Config resident(std::int64_t warps, std::int64_t block_n, std::int64_t row_split) {
  Config config = streaming(warps, 1, block_n, 1);
  config.set("kResident", 1);
  config.set("kConstantKeys", 1);
  config.set("kRowSplit", row_split);
  return config;
}

Config warpgroups(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
                  std::int64_t stages) {
  Config config = streaming(warps, 1, block_n, stages);
  config.set("kConstantKeys", 1);
  config.set("kQueryInRegisters", 0);
  config.set("kSwizzle", swizzle_bytes(problem));
  return config;
}

Config window(const AttentionProblem& problem, std::int64_t stages, std::int64_t row_split) {
  Config config = warpgroups(problem, 4, round_up(problem.nk, 8), stages);
  config.set("kResident", 1);
  config.set("kRowSplit", row_split);
  return config;
}

Config pipelined(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
                 std::int64_t stages) {
  Config config = warpgroups(problem, warps, block_n, stages);
  config.set("kPersistent", 1);
  config.set("kProducer", 1);
  return config;
}

Config mapped(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
              std::int64_t stages) {
  Config config = pipelined(problem, warps, block_n, stages);
  config.set("kProducer", 2);
  config.set("kSpareRows", useful_swap_ab_rows(problem));
  return config;
}

Config wide_swizzle(const AttentionProblem& problem, Config config) {
  if (problem.d % 16 == 8 && problem.d > 64) config.set("kSwizzle", 128);
  return config;
}

}  // namespace vitune
