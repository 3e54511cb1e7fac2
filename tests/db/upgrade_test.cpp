// tests/db/upgrade_test.cpp -- Files of older schema versions: migrated, read and salvaged.
// SPDX-License-Identifier: Apache-2.0
#include "db/upgrade.h"

#include "db/file_guard.h"
#include "db/open_file.h"
#include "db/table.h"
#include "tests/db/older_file.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::make_older;
using test::sample_device;
using test::sample_problem;
using test::fs::path;

const int kCurrent = static_cast<int>(built_in_steps().size());

class Upgrading : public testing::Test {
 protected:
  test::TempDir dir_;
  path file_ = dir_ / "v.db";
};

TEST_F(Upgrading, AnOlderFileKeepsAllThatItHasAndItsWinnersCommitToTheirImages) {
  for (const std::size_t version : {1U, 2U}) {
    const path file = dir_ / ("v" + std::to_string(version) + ".db");
    make_older(file, version);
    {
      const auto store = Store::open(file, Access::kReadWrite);
      EXPECT_EQ(store->stats().schema_version, kCurrent);
      EXPECT_EQ(store->stats().trials, 60);
      EXPECT_EQ(store->stats().binaries, 3);
      EXPECT_EQ(store->check().bad_rows, 0);
      EXPECT_TRUE(store->check().integrity_ok) << store->check().problems.front();
      EXPECT_EQ(store->winners().size(), 6U);
      const auto winner = store->find_winner(sample_device(), sample_problem(), Objective::kCold);
      ASSERT_TRUE(winner && winner->image_digest);
      EXPECT_TRUE(store->find_binary(winner->kernel_key, winner->image_digest));
      EXPECT_EQ(store->find_search(sample_device(), sample_problem(), Objective::kCold).has_value(),
                version == 2);
    }
  }
}

// Nothing but `image` changes: each winner is found as it was, with its image, and a copy is kept.
TEST_F(Upgrading, WinnersOfVersion3AreFoundAndNothingIsLost) {
  make_older(file_, 3);
  const auto now = Store::in_memory();
  test::fill(*now);
  const auto store = Store::open(file_, Access::kReadWrite);
  EXPECT_EQ(store->stats().schema_version, kCurrent);
  EXPECT_EQ(store->check().bad_rows, 0);
  EXPECT_TRUE(store->check().integrity_ok);
  EXPECT_TRUE(store->block_list_is_whole());
  const auto expected = now->winners(), winners = store->winners();
  ASSERT_EQ(winners.size(), expected.size());
  ASSERT_EQ(winners.size(), 6U);
  for (std::size_t i = 0; i < winners.size(); ++i) {
    const Winner& winner = winners[i].winner;
    EXPECT_EQ(winner.config, expected[i].winner.config);
    EXPECT_EQ(winner.kernel_key, expected[i].winner.kernel_key);
    EXPECT_EQ(winner.image_digest, expected[i].winner.image_digest);
    const auto there = now->find_binary(winner.kernel_key, winner.image_digest);
    const auto here = store->find_binary(winner.kernel_key, winner.image_digest);
    ASSERT_EQ(here.has_value(), there.has_value());
    if (here) {
      EXPECT_EQ(here->image, there->image);
    }
  }
  EXPECT_EQ(store->all_trials().size(), now->all_trials().size());
  EXPECT_EQ(store->stats().binaries, 3);
  int copies = 0;
  for (const auto& entry : test::fs::directory_iterator(dir_.path())) {
    copies += entry.path().string().find(".v3-") != std::string::npos;
  }
  EXPECT_EQ(copies, 1);
}

TEST_F(Upgrading, AnOlderFileIsReadAsItWouldBeAfterItsMigrationAndStaysAsItIs) {
  make_older(file_, 2);
  const std::string before = test::read_bytes(file_);
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_EQ(store->winners().size(), 6U);
  EXPECT_TRUE(store->block_list_is_whole());
  const auto version = store->data_version();
  EXPECT_EQ(test::read_bytes(file_), before);
  for (const auto& entry : test::fs::directory_iterator(dir_.path())) {
    EXPECT_EQ(entry.path().string().find(".v2-"), std::string::npos) << "a copy was made";
  }
  Store::open(file_, Access::kReadWrite);
  EXPECT_NE(store->data_version(), version) << "what others do to the file is noticed";
}

TEST_F(Upgrading, SalvageOfAnOlderFileSavesItsWinnersAndBinaries) {
  make_older(file_, 2);
  Store::salvage(file_);
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_EQ(store->stats().winners, 6);
  EXPECT_EQ(store->stats().binaries, 3);
  EXPECT_EQ(store->stats().unverified_winners, 0);
  EXPECT_TRUE(store->block_list_is_whole());
}

}  // namespace
}  // namespace vitune
