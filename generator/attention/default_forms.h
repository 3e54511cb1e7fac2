// generator/attention/default_forms.h -- The forms of kernels that defaults are chosen from.
//
// Whether the space of a device has such a config is for the caller to ask.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/config.h"
#include "generator/attention/problem.h"

namespace vitune {

// Fewest equal steps of at most `most` keys, in multiples of `unit`.
std::int64_t equal_steps(std::int64_t nk, std::int64_t most, std::int64_t unit = 8);

// Warps with tiles of 16 rows: streaming, for any number of keys; all keys in one step; resident.
Config streaming(std::int64_t warps, std::int64_t row_tiles, std::int64_t block_n,
                 std::int64_t stages);
Config one_step(const AttentionProblem& problem, std::int64_t warps);
Config resident(std::int64_t warps, std::int64_t block_n, std::int64_t row_split);

// Warpgroups whose CTAs have tiles of their own: streaming; resident with all keys in one step.
Config warpgroups(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
                  std::int64_t stages);
Config window(const AttentionProblem& problem, std::int64_t stages, std::int64_t row_split);

// Warpgroups with copying warps; and with tiles that come by tensor maps, and one warpgroup more
// for the rows beyond a multiple of 64 where they are few.
Config pipelined(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
                 std::int64_t stages);
Config mapped(const AttentionProblem& problem, std::int64_t warps, std::int64_t block_n,
              std::int64_t stages);

// `config` with tiles that may be twice as large where heads begin at odd multiples of 16 bytes:
// they come faster in few wide rows.
Config wide_swizzle(const AttentionProblem& problem, Config config);

}  // namespace vitune
