// tests/db/ledger_test.cpp -- Attempts, blocked kernels, requests and searches: what is put in
// comes out.
// SPDX-License-Identifier: Apache-2.0
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_block;
using test::sample_config;
using test::sample_device;
using test::sample_key;
using test::sample_problem;
using test::sample_trial;

class Ledger : public testing::Test {
 protected:
  test::TempDir dir_;
  std::unique_ptr<Store> store_ = Store::open(dir_ / "v.db", Access::kReadWrite);
};

TEST_F(Ledger, AnAttemptIsCountedUntilItsTrialIsStored) {
  const Config config = sample_config(5);
  for (const int sm_count : {132, 132, 60}) {
    store_->begin_attempt(sample_device(sm_count), sample_problem(), config, test::ended_process());
  }
  const auto open = store_->open_attempts(sample_device());
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open[0].problem, sample_problem());
  EXPECT_EQ(open[0].config, config);
  EXPECT_EQ(open[0].count, 2);
  store_->put_trial(sample_device(), sample_problem(), sample_trial(5));
  EXPECT_TRUE(store_->open_attempts(sample_device()).empty());
  EXPECT_EQ(store_->open_attempts(sample_device(60)).size(), 1U);
}

TEST_F(Ledger, ABlockHoldsForItsKernelDeviceAndDriverOnly) {
  store_->block(sample_block(1));
  EXPECT_TRUE(store_->is_blocked(sample_key(1), sample_device()));
  EXPECT_FALSE(store_->is_blocked(sample_key(2), sample_device()));
  EXPECT_FALSE(store_->is_blocked(sample_key(1), sample_device(60)));
  DeviceInfo updated = sample_device();
  updated.driver_version = 13010;
  EXPECT_FALSE(store_->is_blocked(sample_key(1), updated));
  const auto blocks = store_->blocks();
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0].reason, sample_block(1).reason);
  EXPECT_EQ(blocks[0].status, TrialStatus::kWrong);
}

TEST_F(Ledger, RequestsAddUpAndDoNotOverflow) {
  const std::string text = sample_problem().text;
  store_->add_requests({{"attention", text, 3, 1.5}, {"attention", text, 4, 2.0}});
  store_->add_requests({{"attention", text, 5, 0}});
  ASSERT_EQ(store_->requests().size(), 1U);
  EXPECT_EQ(store_->requests()[0].calls, 12);
  EXPECT_EQ(store_->requests()[0].total_us, 3.5);
  store_->add_requests({{"attention", text, std::numeric_limits<std::int64_t>::max(), 0}});
  EXPECT_EQ(store_->requests()[0].calls, 12);
}

TEST_F(Ledger, WhatWasSearchedIsKeptPerDeviceProblemAndObjective) {
  const auto search = [&](Objective objective) {
    return store_->find_search(sample_device(), sample_problem(), objective);
  };
  EXPECT_FALSE(search(Objective::kCold));
  const auto keep = [this](const SearchRecord& record) {
    store_->promote(sample_device(), sample_problem(), test::sample_winner(1), nullptr, record);
  };
  keep({test::sample_key(1), 90, false});
  keep({test::sample_key(2), 720 * 3600, true});
  ASSERT_TRUE(search(Objective::kCold));
  EXPECT_EQ(search(Objective::kCold)->kernel_key, test::sample_key(2));
  EXPECT_EQ(search(Objective::kCold)->seconds, 720 * 3600);
  EXPECT_TRUE(search(Objective::kCold)->ended);
  EXPECT_FALSE(search(Objective::kWarm));
  EXPECT_FALSE(store_->find_search(sample_device(60), sample_problem(), Objective::kCold));
  EXPECT_THROW(keep({test::sample_key(2), -1, true}), Error);
}

TEST_F(Ledger, AWinnerComesWithItsSearchOrNeitherDoes) {
  const auto promote = [this](Winner winner, std::int64_t seconds) {
    return store_->promote(sample_device(), sample_problem(), winner, nullptr,
                           SearchRecord{winner.kernel_key, seconds, true});
  };
  const auto seconds = [this] {
    return store_->find_search(sample_device(), sample_problem(), Objective::kCold)->seconds;
  };
  EXPECT_TRUE(promote(test::sample_winner(1), 90));
  EXPECT_EQ(seconds(), 90);
  Winner replayed = test::sample_winner(2);
  replayed.origin = Origin::kReplayed;
  EXPECT_FALSE(promote(replayed, 10));
  EXPECT_EQ(seconds(), 90);
  EXPECT_ANY_THROW(promote(test::sample_winner(3), -1));
  EXPECT_EQ(store_->find_winner(sample_device(), sample_problem(), Objective::kCold)->config,
            test::sample_winner(1).config);
}

}  // namespace
}  // namespace vitune
