// tests/db/rekey_test.cpp -- Stored results under the new keys of their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "db/rekey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/binary_table.h"
#include "db/store.h"
#include "tests/db/test_support.h"

namespace vitune::test {
namespace {

class RekeyTest : public ::testing::Test {
 protected:
  // Two problems with a winner, its trial, search and kernel, and a block of each kernel.
  RekeyTest() {
    const auto store = open();
    for (const int tokens : {197, 257}) {
      const Winner winner = sample_winner(tokens);
      const Binary binary = sample_binary(tokens);
      Trial trial = sample_trial(tokens);
      trial.config = winner.config;
      trial.kernel_key = winner.kernel_key;
      store->put_trial(sample_device(), sample_problem(tokens), trial);
      store->promote(sample_device(), sample_problem(tokens), winner, &binary,
                     SearchRecord{winner.kernel_key, 60, true});
      store->block(block_of(winner.kernel_key));
    }
  }
  std::unique_ptr<Store> open() { return Store::open(file_, Access::kReadWrite); }
  static BlockEntry block_of(const Digest& key, TrialStatus status = TrialStatus::kWrong) {
    return {key, sample_device().key(), sample_device().driver_version, status, "max error 0.5"};
  }

  TempDir directory_;
  const fs::path file_ = directory_ / "user.db";
  const Digest old_ = sample_winner(197).kernel_key, new_ = sha256("renamed"),
               other_ = sample_winner(257).kernel_key;
};

TEST_F(RekeyTest, EveryRowOfAKernelKeepsAllButItsKey) {
  const auto winner = open()->find_winner(sample_device(), sample_problem(197), Objective::kCold);
  const auto trials = open()->trials(sample_device(), sample_problem(197));
  const auto binary = open()->find_binary(old_);
  ASSERT_TRUE(winner && binary);

  const RekeyReport report = rekey(file_, {{old_, new_}});

  EXPECT_EQ(report.winners, 1);
  EXPECT_EQ(report.trials, 1);
  EXPECT_EQ(report.searches, 1);
  EXPECT_EQ(report.binaries, 1);
  EXPECT_EQ(report.blocks, 1);
  const auto store = open();
  Winner expected = *winner;
  expected.kernel_key = new_;
  EXPECT_EQ(store->find_winner(sample_device(), sample_problem(197), Objective::kCold), expected);
  const auto now = store->trials(sample_device(), sample_problem(197));
  ASSERT_EQ(now.size(), trials.size());
  EXPECT_EQ(now[0].kernel_key, new_);
  EXPECT_EQ(now[0].measurement, trials[0].measurement);
  const auto moved = store->find_binary(new_, winner->image_digest);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->image, binary->image);
  EXPECT_FALSE(store->has_binary(old_));
  EXPECT_TRUE(store->is_blocked(new_, sample_device()));
  EXPECT_TRUE(store->is_blocked(old_, sample_device())) << "an older version asks for that";
  EXPECT_EQ(store->find_search(sample_device(), sample_problem(197), Objective::kCold)->kernel_key,
            new_);
  EXPECT_TRUE(store->block_list_is_whole());
  EXPECT_TRUE(store->check().integrity_ok);
  EXPECT_EQ(store->check().bad_rows, 0);
}

TEST_F(RekeyTest, RowsOfOtherKernelsStayAndASecondTimeChangesNothing) {
  rekey(file_, {{old_, new_}, {sha256("nobody's"), sha256("new")}});
  const Digest before = open()->content_digest();
  EXPECT_TRUE(open()->has_binary(other_));
  EXPECT_TRUE(open()->is_blocked(other_, sample_device()));
  const RekeyReport again = rekey(file_, {{old_, new_}});
  EXPECT_EQ(again.winners + again.trials + again.searches + again.binaries + again.blocks, 0);
  EXPECT_EQ(open()->content_digest(), before);
}

TEST_F(RekeyTest, TwoKernelsMayBecomeOne) {
  rekey(file_, {{old_, new_}, {other_, new_}});
  const auto store = open();
  EXPECT_TRUE(store->is_blocked(new_, sample_device()));
  EXPECT_EQ(store->block_rows().size(), 3u) << "those of before and the new one";
  EXPECT_TRUE(store->block_list_is_whole());
  for (const int tokens : {197, 257}) {
    const auto winner =
        store->find_winner(sample_device(), sample_problem(tokens), Objective::kCold);
    ASSERT_TRUE(winner);
    EXPECT_EQ(winner->kernel_key, new_);
    EXPECT_TRUE(store->find_binary(new_, winner->image_digest)) << "each has its own image";
  }
}

// In whatever order the keys come, and whether the new key or an old one was lifted.
TEST_F(RekeyTest, WhatLiftsABlockOfOneKeyLiftsNoneOfAnother) {
  for (const Digest& lifted : {old_, other_, new_}) {
    const fs::path copy = directory_ / (lifted.hex() + ".db");
    fs::copy_file(file_, copy);
    {
      const auto store = Store::open(copy, Access::kReadWrite);
      BlockEntry block = block_of(lifted);
      block.created = 1'800'000'000;  // so that the lift is later than all blocks
      store->unblock_all({block});
      ASSERT_FALSE(store->is_blocked(lifted, sample_device()));
    }
    rekey(copy, {{old_, new_}, {other_, new_}});
    const auto store = Store::open(copy, Access::kReadWrite);
    EXPECT_TRUE(store->is_blocked(new_, sample_device()));
    EXPECT_EQ(store->is_blocked(lifted, sample_device()), lifted == new_);
    EXPECT_TRUE(store->block_list_is_whole());
  }
}

TEST_F(RekeyTest, AKernelWhoseBlockWasLiftedIsNotBlockedByItsNewKey) {
  open()->unblock_all({block_of(old_)});
  rekey(file_, {{old_, new_}});
  EXPECT_FALSE(open()->is_blocked(new_, sample_device()));
  EXPECT_FALSE(open()->is_blocked(old_, sample_device()));
}

TEST_F(RekeyTest, BlocksOfOtherDatabasesAreWrittenDownForTheNewKey) {
  open()->unblock_all({block_of(old_)});
  BlockEntry elsewhere = block_of(old_, TrialStatus::kCrash);
  elsewhere.created = 1'800'000'000;
  RekeyFacts facts;
  facts.blocks = {elsewhere, block_of(sha256("nobody's"))};

  const RekeyReport report = rekey(file_, {{old_, new_}}, facts);

  EXPECT_EQ(report.blocks, 1);
  const auto found = open()->find_block(new_, sample_device());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->status, TrialStatus::kCrash);
  EXPECT_EQ(found->created, elsewhere.created);
  EXPECT_FALSE(open()->is_blocked(old_, sample_device())) << "that was lifted here";
  EXPECT_TRUE(open()->block_list_is_whole());
  EXPECT_EQ(rekey(file_, {{old_, new_}}, facts).blocks, 0);
}

TEST_F(RekeyTest, AKernelWithAnImageThatWasNotComparedKeepsItsKey) {
  Binary second = sample_binary(197);
  second.image.push_back(std::byte{1});
  open()->put_binary(second);
  const auto first = open()->find_winner(sample_device(), sample_problem(197), Objective::kCold);
  ASSERT_TRUE(first && first->image_digest);
  std::set<Digest> images;
  visit_images(file_, {old_}, [&](const Binary&, const Digest& image) { images.insert(image); });
  EXPECT_EQ(images, (std::set{*first->image_digest, image_digest(second.image)}))
      << "each is visited";
  const Digest before = open()->content_digest();
  RekeyFacts facts;
  facts.compared = {{old_, {*first->image_digest}}};

  const RekeyReport refusal = rekey(file_, {{old_, new_}}, facts);

  EXPECT_EQ(refusal.refused, std::set{old_});
  EXPECT_EQ(open()->content_digest(), before);
  facts.compared = {{old_, images}};
  EXPECT_TRUE(rekey(file_, {{old_, new_}}, facts).refused.empty());
  EXPECT_TRUE(open()->find_binary(new_, *first->image_digest));
  EXPECT_TRUE(open()->find_binary(new_, image_digest(second.image)));
}

TEST_F(RekeyTest, AnImageThatOnlyAnotherDatabaseHasGoesAlong) {
  const auto winner = open()->find_winner(sample_device(), sample_problem(197), Objective::kCold);
  const auto binary = open()->find_binary(old_, winner->image_digest);
  ASSERT_TRUE(binary);
  Connection(file_, Connection::Mode::kReadWrite).execute("DELETE FROM binary");
  RekeyFacts facts;
  facts.binaries = {*binary, sample_binary(257)};

  EXPECT_EQ(rekey(file_, {{old_, new_}}, facts).binaries, 1);

  EXPECT_TRUE(open()->find_binary(new_, winner->image_digest));
  EXPECT_FALSE(open()->has_binary(old_));
  EXPECT_FALSE(open()->has_binary(other_));
}

TEST_F(RekeyTest, AKeyIsNotBothOldAndNew) {
  EXPECT_THROW(rekey(file_, {{old_, other_}, {other_, new_}}), Error);
  EXPECT_TRUE(open()->has_binary(old_));
}

TEST_F(RekeyTest, WithoutAWholeBlockListNothingIsChanged) {
  Connection(file_, Connection::Mode::kReadWrite).execute("DELETE FROM block");
  EXPECT_THROW(rekey(file_, {{old_, new_}}), DatabaseError);
  EXPECT_TRUE(open()->has_binary(old_));
  EXPECT_FALSE(open()->has_binary(new_));
}

TEST_F(RekeyTest, APackStaysAsItIs) {
  const fs::path pack = directory_ / "site.pack";
  open()->write_pack(pack, {"of a test", {}, {}});
  const std::string before = read_bytes(pack);
  EXPECT_THROW(rekey(pack, {{old_, new_}}), DatabaseError);
  EXPECT_EQ(read_bytes(pack), before);
}

}  // namespace
}  // namespace vitune::test
