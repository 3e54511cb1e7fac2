// cli/fleet/shard.h -- Which part of the work one task of a job array does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "core/env.h"

namespace vitune {

constexpr std::uint32_t kMostShards = 65536;

struct Shard {
  std::uint32_t index = 0;  // below `count`
  std::uint32_t count = 1;
};

// "3/8": the fourth of eight. "auto/8": the task's number in a Slurm job array or a Kubernetes
// Indexed Job is I. "auto": a Slurm array as a whole, whose tasks are counted from its lowest
// number. Throws Error(kUsage) that says what to write instead.
Shard parse_shard(std::string_view text, const Environment& environment);

}  // namespace vitune
