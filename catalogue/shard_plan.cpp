// catalogue/shard_plan.cpp -- Longest processing time first, over exact integers.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/shard_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/digest.h"
#include "core/error.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Fixed cost of a trial: its share of compiling, loading and judging.
constexpr std::uint64_t kTrialNs = 200'000'000;
// Calls of a trial for the judge, the warm-up and both residencies.
constexpr std::uint64_t kCallsPerTrial = 200;
constexpr std::uint64_t kFlopsPerNs = 200'000;
constexpr std::uint64_t kBytesPerNs = 2'000;
constexpr std::uint64_t kMostNs = std::uint64_t{1} << 32;  // of a call

// Doubles hold products of integers exactly up to 2^53; what is more counts as that, so that no
// rounding, which compilers may do differently, decides about a plan.
std::uint64_t exact(double value) {
  constexpr double kMost = 9007199254740992.0;
  return static_cast<std::uint64_t>(std::clamp(value, 0.0, kMost));
}

}  // namespace

std::uint64_t tuning_cost(const Problem& problem) {
  const Operator& op = problem.op();
  const std::uint64_t call =
      std::max(exact(op.flops(problem)) / kFlopsPerNs, exact(op.min_bytes(problem)) / kBytesPerNs);
  return kTrialNs + kCallsPerTrial * std::min(call, kMostNs);
}

std::vector<std::uint32_t> plan_shards(const std::vector<PlanItem>& items, std::uint32_t shards) {
  if (shards == 0) throw Error(ErrorCode::kUsage, "a plan needs at least one shard");
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (items[a].cost != items[b].cost) return items[a].cost > items[b].cost;
    return items[a].text < items[b].text;
  });
  using Load = std::pair<std::uint64_t, std::uint32_t>;  // what a shard has so far, its number
  std::vector<Load> empty;
  for (std::uint32_t i = 0; i < shards; ++i) empty.emplace_back(0, i);
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least({}, std::move(empty));
  std::vector<std::uint32_t> plan(items.size());
  for (const std::size_t item : order) {
    const auto [load, shard] = least.top();
    least.pop();
    plan[item] = shard;
    least.emplace(load + items[item].cost, shard);
  }
  return plan;
}

ShardPlan plan_problems(const std::vector<NamedProblem>& problems, std::uint32_t shards) {
  ShardPlan plan;
  plan.shards = shards;
  std::vector<PlanItem> items;
  std::vector<std::string_view> texts;
  for (const NamedProblem& named : problems) {
    plan.costs.push_back(tuning_cost(*named.problem));
    plan.cost += plan.costs.back();
    items.push_back({named.problem->text(), plan.costs.back()});
    texts.push_back(items.back().text);
  }
  plan.shard = plan_shards(items, shards);
  std::ranges::sort(texts);
  std::string all = std::to_string(shards) + "\n";
  for (const std::string_view text : texts) all.append(text).append("\n");
  plan.digest = sha256(all).hex();
  return plan;
}

}  // namespace vitune
