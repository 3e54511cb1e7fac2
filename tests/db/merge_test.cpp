// tests/db/merge_test.cpp -- Merging is commutative, associative and idempotent.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <span>

#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_device;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;

constexpr int kRounds = 25;

// Few keys and few figures, so that two databases collide and tie often.
std::unique_ptr<Store> random_store(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](unsigned n) { return static_cast<int>(random() % n); };
  auto store = Store::in_memory();
  for (int i = 0; i < 12; ++i) {
    DeviceInfo device = sample_device(100 + pick(2));
    device.driver_version = 13000 + pick(2);
    device.name = pick(2) == 0 ? "one" : "two";
    Trial trial = sample_trial(pick(4));
    trial.origin = static_cast<Origin>(pick(3));
    trial.status = pick(3) == 0 ? TrialStatus::kTimeout : TrialStatus::kOk;
    trial.measurement.cold.samples = 10 * pick(2);
    trial.measurement.cold.median_us = 1 + pick(2);
    store->put_trial(device, sample_problem(pick(2)), trial);
    Winner winner = sample_winner(pick(3), pick(2) == 0 ? Objective::kCold : Objective::kWarm);
    winner.origin = static_cast<Origin>(pick(3));
    winner.verified = pick(2) == 0;
    winner.measurement.cold.samples = 10 * pick(2);
    winner.measurement.warm.median_us = 1 + pick(2);
    winner.trials = pick(2);
    store->promote(device, sample_problem(pick(2)), winner, nullptr);
  }
  store->add_requests({{"attention", sample_problem(pick(2)).text, pick(9), 1.5 * pick(4)}});
  return store;
}

// Something in every table that is merged, few keys again. Every fourth file has lost its problems,
// as a salvaged one may.
std::unique_ptr<Store> random_shard(const test::fs::path& path, unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](unsigned n) { return static_cast<int>(random() % n); };
  {
    auto store = Store::open(path, Access::kReadWrite);
    store->merge(*random_store(seed));
    for (int i = 0; i < 6; ++i) {
      const DeviceInfo device = sample_device(100 + pick(2));
      Winner winner = sample_winner(pick(4));
      Timing& timing = winner.measurement.cold;
      timing = {8.0 + pick(4), 7.5, 9.0 + pick(4), 4 + 3 * pick(3)};
      winner.measurement.low_confidence = pick(2) == 0;
      winner.tuned_at = pick(2) == 0 ? "2026-02-01T00:00:00Z" : "2026-03-01T00:00:00Z";
      Binary binary = test::sample_binary(pick(4), 50 + 10 * static_cast<std::size_t>(pick(2)));
      binary.compile.compile_ms = pick(2);
      winner.kernel_key = binary.kernel_key;
      store->promote(device, sample_problem(pick(3)), winner, pick(2) == 0 ? &binary : nullptr,
                     SearchRecord{winner.kernel_key, pick(3), pick(2) == 0});
    }
    BlockEntry block = test::sample_block(pick(8));
    block.reason = pick(2) == 0 ? "wrong" : "illegal address";
    store->block(block);
    if (pick(4) == 0) store->unblock_all({block});
  }
  if (seed % 4 == 0) {
    Connection raw(path, Connection::Mode::kReadWrite);
    raw.execute("DELETE FROM problem");
  }
  return Store::open(path, Access::kReadOnly);
}

// Stands in for the templates: some kernels are made today, others not.
bool is_even_kernel(const DeviceInfo&, const ProblemKey&, const Winner& winner) {
  return winner.kernel_key.bytes.front() % 2 == 0;
}

// All of `parts`, some of them put together before the others are.
std::unique_ptr<Store> grouped(std::span<Store* const> parts, std::mt19937& random) {
  auto total = Store::in_memory();
  while (!parts.empty()) {
    std::size_t count = random() % 3 == 0 ? 1 + random() % parts.size() : 1;
    if (count == parts.size() && count > 1) --count;
    if (count == 1) {
      total->merge(*parts.front(), is_even_kernel);
    } else {
      total->merge(*grouped(parts.first(count), random), is_even_kernel);
    }
    parts = parts.subspan(count);
  }
  return total;
}

std::string merged(std::initializer_list<unsigned> seeds) {
  auto total = Store::in_memory();
  for (const unsigned seed : seeds) {
    const auto part = random_store(seed);
    total->merge(*part);
  }
  return total->export_json();
}

TEST(Merge, TheOrderOfTwoDatabasesDoesNotMatter) {
  for (unsigned seed = 0; seed < kRounds; ++seed) {
    const auto a = random_store(seed);
    const auto b = random_store(seed + 1000);
    a->merge(*random_store(seed + 1000));
    b->merge(*random_store(seed));
    ASSERT_EQ(a->export_json(), b->export_json()) << "seed " << seed;
  }
}

TEST(Merge, TheOrderOfThreeDatabasesDoesNotMatter) {
  for (unsigned seed = 0; seed < kRounds; ++seed) {
    const unsigned x = seed, y = seed + 1000, z = seed + 2000;
    const std::string expected = merged({x, y, z});
    ASSERT_EQ(merged({z, y, x}), expected) << "seed " << seed;
    const auto right = random_store(y);
    right->merge(*random_store(z));
    const auto left = random_store(x);
    left->merge(*right);
    ASSERT_EQ(left->export_json(), expected) << "seed " << seed;
  }
}

TEST(Merge, TwoHundredOrdersAndGroupingsOfThirtyTwoFilesGiveOneDigest) {
  constexpr unsigned kFiles = 32;
  constexpr int kOrders = 200;
  test::TempDir dir;
  std::vector<std::unique_ptr<Store>> files;
  std::vector<Store*> order;
  std::set<std::string> blocked;
  for (unsigned seed = 0; seed < kFiles; ++seed) {
    files.push_back(random_shard(dir / (std::to_string(seed) + ".db"), seed));
    order.push_back(files.back().get());
    for (const BlockEntry& block : files.back()->blocks()) blocked.insert(block.kernel_key.hex());
  }
  std::mt19937 random(7);
  const auto expected = grouped(order, random);
  EXPECT_TRUE(expected->block_list_is_whole());
  EXPECT_EQ(expected->blocks().size(), blocked.size());
  for (int i = 0; i < kOrders; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    const auto total = grouped(order, random);
    ASSERT_EQ(total->content_digest().hex(), expected->content_digest().hex()) << "order " << i;
    total->merge(*order.front(), is_even_kernel);
    ASSERT_EQ(total->content_digest().hex(), expected->content_digest().hex()) << "once more";
  }
}

TEST(Merge, TheDigestTellsContentsApartAndNothingElse) {
  test::TempDir dir;
  auto first = Store::open(dir / "a.db", Access::kReadWrite);
  auto second = Store::in_memory();
  for (const int n : {1, 2, 3})
    first->put_trial(sample_device(), sample_problem(), sample_trial(n));
  for (const int n : {3, 1, 2})
    second->put_trial(sample_device(), sample_problem(), sample_trial(n));
  second->begin_attempt(sample_device(), sample_problem(), test::sample_config(9));
  EXPECT_EQ(first->content_digest(), second->content_digest());
  Trial changed = sample_trial(2);
  changed.measurement.cold.median_us += 0.001;
  second->put_trial(sample_device(), sample_problem(), changed);
  EXPECT_NE(first->content_digest(), second->content_digest());
}

TEST(Merge, TheDigestOfResultsLeavesOutWhenAndHowLongButNotHowFast) {
  const auto digest_with = [](const std::string& when, double compile_ms, double us) {
    const auto store = Store::in_memory();
    Trial trial = sample_trial(1);
    trial.compile.compile_ms = compile_ms;
    Winner winner = sample_winner(1);
    winner.tuned_at = when;
    winner.measurement.cold.median_us = us;
    store->put_trial(sample_device(), sample_problem(), trial);
    store->promote(sample_device(), sample_problem(), winner, nullptr);
    EXPECT_NE(store->content_digest(DigestOf::kResults), store->content_digest());
    return store->content_digest(DigestOf::kResults).hex();
  };
  const std::string first = digest_with("2026-01-02T03:04:05Z", 120, 25);
  EXPECT_EQ(digest_with("2026-02-02T03:04:05Z", 70, 25), first);
  EXPECT_NE(digest_with("2026-01-02T03:04:05Z", 120, 24.9), first);
}

TEST(Merge, AWinnerWhoseKernelIsNoLongerMadeGivesWay) {
  Winner stale = sample_winner(1), made = sample_winner(2);
  made.measurement.cold = {90, 80, 99, 2};
  made.verified = false;
  const auto makes = [&](const DeviceInfo& device, const ProblemKey& problem,
                         const Winner& winner) {
    return device.key() == sample_device().key() && problem == sample_problem() &&
           winner.kernel_key == made.kernel_key;
  };
  for (const bool made_first : {true, false}) {
    auto mine = Store::in_memory(), other = Store::in_memory();
    mine->promote(sample_device(), sample_problem(), made_first ? made : stale, nullptr);
    other->promote(sample_device(), sample_problem(), made_first ? stale : made, nullptr);
    mine->merge(*other, makes);
    EXPECT_EQ(mine->find_winner(sample_device(), sample_problem(), Objective::kCold), made);
  }
}

TEST(Merge, MergingTheSameAgainChangesNothing) {
  for (unsigned seed = 0; seed < kRounds; ++seed) {
    const auto a = random_store(seed);
    const std::string before = a->export_json();
    const MergeReport own = a->merge(*random_store(seed));
    ASSERT_EQ(a->export_json(), before);
    EXPECT_EQ(own.trials_added + own.winners_added + own.winners_replaced + own.binaries_added, 0);
    a->merge(*random_store(seed + 1000));
    const std::string once = a->export_json();
    a->merge(*random_store(seed + 1000));
    ASSERT_EQ(a->export_json(), once) << "seed " << seed;
  }
}

TEST(Merge, TheBetterFoundedWinnerStays) {
  struct Case {
    const char* what;
    std::function<void(Winner&)> better, worse;
  };
  const Case cases[] = {
      {"verified", [](Winner& w) { w.measurement.cold.samples = 1; },
       [](Winner& w) { w.verified = false; }},
      {"measured", [](Winner&) {}, [](Winner& w) { w.origin = Origin::kReplayed; }},
      {"replayed before imported", [](Winner& w) { w.origin = Origin::kReplayed; },
       [](Winner& w) { w.origin = Origin::kImported; }},
      {"six samples have an interval",
       [](Winner& w) {
         w.measurement.cold = {9, 8, 10, 6};
       },
       [](Winner& w) {
         w.measurement.cold = {1, 1, 1, 5};
       }},
      {"quiet clocks", [](Winner& w) { w.measurement.low_confidence = false; },
       [](Winner& w) {
         w.measurement.cold = {1, 1, 1, 40};
       }},
      {"faster within the interval, not more samples",
       [](Winner& w) {
         w.measurement.cold = {9, 8.9, 9.1, 20};
         w.tuned_at = "2026-03-01T00:00:00Z";
       },
       [](Winner& w) {
         w.measurement.cold = {10, 9.9, 10.1, 400};
       }},
      {"a wide interval counts against its few samples",
       [](Winner& w) {
         w.measurement.cold = {10, 9.9, 10.1, 40};
       },
       [](Winner& w) {
         w.measurement.cold = {9.5, 4, 15, 6};
       }},
      {"samples", [](Winner& w) { w.measurement.cold.samples = 99; }, [](Winner&) {}},
      {"the later date", [](Winner& w) { w.tuned_at = "2026-01-31T10:20:31Z"; }, [](Winner&) {}},
      {"time", [](Winner& w) { w.measurement.cold.median_us = 1; }, [](Winner&) {}},
      {"text",
       [](Winner& w) {
         w.config = {{"kA", 1}};
       },
       [](Winner& w) {
         w.config = {{"kA", 2}};
       }},
  };
  for (const Case& c : cases) {
    Winner better = sample_winner(5);
    Winner worse = sample_winner(5);
    c.better(better);
    c.worse(worse);
    for (const bool better_first : {true, false}) {
      auto mine = Store::in_memory();
      auto other = Store::in_memory();
      mine->promote(sample_device(), sample_problem(), better_first ? better : worse, nullptr);
      other->promote(sample_device(), sample_problem(), better_first ? worse : better, nullptr);
      const MergeReport report = mine->merge(*other);
      EXPECT_EQ(mine->find_winner(sample_device(), sample_problem(), Objective::kCold), better)
          << c.what;
      EXPECT_EQ(report.winners_replaced, better_first ? 0 : 1) << c.what;
    }
  }
}

TEST(Merge, EverythingButAttemptsIsTakenOver) {
  auto from = Store::in_memory();
  test::fill(*from);
  auto into = Store::in_memory();
  const MergeReport report = into->merge(*from);
  EXPECT_EQ(report.trials_added, 60);
  EXPECT_EQ(report.winners_added, 6);
  EXPECT_EQ(report.binaries_added, 3);
  EXPECT_EQ(report.skipped, 0);
  EXPECT_EQ(into->export_json(), from->export_json());
  EXPECT_EQ(into->blocks().size(), 1U);
  EXPECT_EQ(into->find_binary(test::sample_key(197))->image, test::sample_binary(197).image);
  EXPECT_TRUE(into->open_attempts(sample_device()).empty());
  const auto search = [&] {
    return into->find_search(sample_device(), sample_problem(), Objective::kCold);
  };
  ASSERT_TRUE(search());
  EXPECT_EQ(search()->seconds, 90);
  // The longer search is kept, from whichever side it comes.
  into->promote(sample_device(), sample_problem(), sample_winner(197), nullptr,
                SearchRecord{test::sample_key(1), 91, false});
  into->merge(*from);
  EXPECT_EQ(search()->seconds, 91);
  from->merge(*into);
  EXPECT_EQ(from->find_search(sample_device(), sample_problem(), Objective::kCold)->seconds, 91);
}

TEST(Merge, AFileMergesWithItselfWithoutWaitingForItself) {
  test::TempDir dir;
  auto first = Store::open(dir / "a.db", Access::kReadWrite);
  test::fill(*first);
  auto second = Store::open(dir / "a.db", Access::kReadOnly);
  const std::string before = first->export_json();
  first->merge(*second);
  first->merge(*first);
  EXPECT_EQ(first->export_json(), before);
}

TEST(Merge, DamagedRowsAreNotTakenOver) {
  test::TempDir dir;
  test::fill(*Store::open(dir / "a.db", Access::kReadWrite));
  {
    Connection raw(dir / "a.db", Connection::Mode::kReadWrite);
    raw.execute("UPDATE winner SET cold_us = 0.001 WHERE objective = 'cold'");
  }
  auto from = Store::open(dir / "a.db", Access::kReadOnly);
  auto into = Store::in_memory();
  EXPECT_EQ(into->merge(*from).winners_added, 0);
  EXPECT_EQ(from->damaged_rows(), 6);
  EXPECT_EQ(into->stats().trials, 60);
}

}  // namespace
}  // namespace vitune
