// catalogue/shard_plan.h -- Which machine of many tunes which problem.
//
// It follows from the problems and the number of shards alone, in integers. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/named_problem.h"

namespace vitune {

// How long tuning `problem` takes beside others: predicted nanoseconds of a trial on a data centre
// GPU, at least 1. The same on every machine, whatever GPU that has.
std::uint64_t tuning_cost(const Problem& problem);

struct PlanItem {
  std::string_view text;   // canonical, different for each item
  std::uint64_t cost = 1;  // at most 2^40
};

// The shard, from 0 to `shards` - 1, of each item. Graham's rule of the longest processing time:
// items from the dearest to the cheapest (then by text), each to the shard that has least so far
// (then the lowest number). The order of `items` does not matter. Throws Error(kUsage) for
// `shards` = 0.
std::vector<std::uint32_t> plan_shards(const std::vector<PlanItem>& items, std::uint32_t shards);

// A plan and what names it: two machines that disagree about the input have different digests.
struct ShardPlan {
  std::uint32_t shards = 1;
  std::string digest;                // of the texts in ascending order and the number of shards
  std::uint64_t cost = 0;            // of all problems
  std::vector<std::uint32_t> shard;  // of each problem, as they were given
  std::vector<std::uint64_t> costs;  // of each problem
};
ShardPlan plan_problems(const std::vector<NamedProblem>& problems, std::uint32_t shards);

}  // namespace vitune
