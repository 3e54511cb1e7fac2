// tests/catalogue/shard_plan_test.cpp -- A plan is complete, balanced and the same for every order.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/shard_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/error.h"
#include "tests/patience.h"

namespace vitune {
namespace {

struct Drawn {
  std::vector<std::string> texts;
  std::vector<PlanItem> items;
};

// Costs from one to a hundred, as evenly over the powers as problems are.
Drawn draw(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Drawn drawn;
  for (std::size_t i = 0; i < count; ++i) drawn.texts.push_back("problem " + std::to_string(i));
  for (const std::string& text : drawn.texts) {
    const std::uint64_t high = std::uint64_t{1'000'000} << random() % 7;
    drawn.items.push_back({text, high + random() % high});
  }
  return drawn;
}

std::vector<std::uint64_t> loads(const std::vector<PlanItem>& items,
                                 const std::vector<std::uint32_t>& plan, std::uint32_t shards) {
  std::vector<std::uint64_t> sums(shards);
  for (std::size_t i = 0; i < items.size(); ++i) sums.at(plan.at(i)) += items[i].cost;
  return sums;
}

TEST(ShardPlanTest, EveryItemHasOneShardWhateverTheOrderOfTheInput) {
  std::mt19937_64 random(7);
  for (const std::uint32_t shards : {1U, 2U, 3U, 8U, 97U}) {
    for (const std::size_t count : {0U, 1U, 2U, 50U, 1000U}) {
      const Drawn drawn = draw(count, shards * 1000 + count);
      const auto plan = plan_shards(drawn.items, shards);
      ASSERT_EQ(plan.size(), count);
      std::map<std::string_view, std::uint32_t> by_text;
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_LT(plan[i], shards);
        by_text[drawn.items[i].text] = plan[i];
      }
      std::vector<PlanItem> shuffled = drawn.items;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const auto again = plan_shards(shuffled, shards);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(again[i], by_text.at(shuffled[i].text)) << shuffled[i].text;
      }
    }
  }
}

// After each item that a shard got, no other had less before it.
TEST(ShardPlanTest, NoShardExceedsAnotherByMoreThanOneItem) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Drawn drawn = draw(20 + seed * 7, seed);
    const std::uint32_t shards = 1 + static_cast<std::uint32_t>(seed % 13);
    const auto plan = plan_shards(drawn.items, shards);
    const auto sums = loads(drawn.items, plan, shards);
    const std::uint64_t least = *std::ranges::min_element(sums);
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      std::uint64_t cheapest = ~std::uint64_t{0};
      for (std::size_t i = 0; i < plan.size(); ++i) {
        if (plan[i] == shard) cheapest = std::min(cheapest, drawn.items[i].cost);
      }
      if (cheapest != ~std::uint64_t{0}) {
        EXPECT_LE(sums[shard] - cheapest, least) << seed;
      }
    }
  }
}

TEST(ShardPlanTest, PlansThatAreWorkedOutByHand) {
  const std::vector<PlanItem> items = {{"a", 5}, {"b", 4}, {"c", 3}, {"d", 3}, {"e", 3}};
  EXPECT_EQ(plan_shards(items, 2), (std::vector<std::uint32_t>{0, 1, 1, 0, 1}));
  const std::vector<PlanItem> equal = {{"c", 1}, {"a", 1}, {"b", 1}};
  EXPECT_EQ(plan_shards(equal, 3), (std::vector<std::uint32_t>{2, 0, 1}));
  EXPECT_THROW(plan_shards(items, 0), Error);
}

TEST(ShardPlanTest, AHundredThousandProblemsOver4096ShardsAreBalancedWithinTwoSeconds) {
  constexpr std::uint32_t kShards = 4096;
  std::vector<NamedProblem> problems;
  std::mt19937_64 random(11);
  for (int i = 0; i < 100'000; ++i) {
    NamedProblem named;
    named.problem = parse_problem("bf16 b=" + std::to_string(1 + random() % 64) +
                                  " h=" + std::to_string(1 + random() % 32) +
                                  " n=" + std::to_string(2 + i) + " d=64");
    named.name = named.problem->text();
    problems.push_back(std::move(named));
  }
  ShardPlan plan;
  EXPECT_TRUE(test::is_prompt(std::chrono::seconds(2 * test::kSlowness),
                              [&] { plan = plan_problems(problems, kShards); }));
  std::vector<std::uint64_t> sums(kShards);
  for (std::size_t i = 0; i < problems.size(); ++i) sums.at(plan.shard[i]) += plan.costs[i];
  const auto [least, most] = std::ranges::minmax(sums);
  RecordProperty("spread",
                 std::to_string(static_cast<double>(most - least) / static_cast<double>(least)));
  EXPECT_LT(static_cast<double>(most), 1.05 * static_cast<double>(least));
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), plan.cost);
}

TEST(ShardPlanTest, TheDigestNamesTheProblemsAndTheNumberOfShardsButNotTheirOrder) {
  const auto named = [](const char* text) {
    NamedProblem problem;
    problem.problem = parse_problem(text);
    return problem;
  };
  const NamedProblem a = named("bf16 b=1 h=12 n=197 d=64"), b = named("bf16 b=2 h=12 n=197 d=64");
  const std::string digest = plan_problems({a, b}, 4).digest;
  EXPECT_EQ(plan_problems({b, a}, 4).digest, digest);
  EXPECT_NE(plan_problems({a, b}, 5).digest, digest);
  EXPECT_NE(plan_problems({a}, 4).digest, digest);
}

// 200 calls of the 38,731,776 bytes of q, k, v and o at 2,000 bytes a nanosecond, over the fixed
// share.
TEST(ShardPlanTest, CostsAreFixedIntegers) {
  EXPECT_EQ(tuning_cost(*parse_problem("bf16 b=1 h=1 n=1 d=64")), 200'000'000U);
  EXPECT_EQ(tuning_cost(*parse_problem("bf16 b=32 h=12 n=197 d=64 layout=packed")), 203'873'000U);
}

}  // namespace
}  // namespace vitune
