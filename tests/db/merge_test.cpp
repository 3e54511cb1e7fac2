// tests/db/merge_test.cpp -- Merging is commutative, associative and idempotent.
// SPDX-License-Identifier: Apache-2.0
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
      {"samples", [](Winner& w) { w.measurement.cold.samples = 99; },
       [](Winner& w) { w.measurement.cold.median_us = 1; }},
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
  into->put_search(sample_device(), sample_problem(), Objective::kCold,
                   {test::sample_key(1), 91, false});
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
