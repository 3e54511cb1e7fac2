// tests/db/block_list_test.cpp -- A kernel that is known to be wrong stays blocked, whatever is
// lost.
// SPDX-License-Identifier: Apache-2.0

#include "db/sqlite.h"
#include "tests/db/blocked_winner.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_block;
using test::sample_device;
using test::sample_key;
using test::sample_problem;
using test::fs::path;

// Winner number 0 of the sample rows, whose kernel is blocked beside 40 others.
class BlockList : public testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::open(file_, Access::kReadWrite);
    test::fill(*store);
    blocked_ = test::block_a_winner(*store);
    ASSERT_TRUE(store->block_list_is_whole());
  }

  // True if a reader of the file may come to launch the blocked winner.
  bool lets_it_run(const path& file) {
    try {
      return test::may_run(file, blocked_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDatabase) << error.what();
    }
    return false;
  }

  void execute(const std::string& sql) {
    Connection(file_, Connection::Mode::kReadWrite).execute(sql);
  }

  test::TempDir dir_;
  path file_ = dir_ / "v.db";
  Digest blocked_;
};

TEST_F(BlockList, ADamagedRowStillBlocks) {
  execute("UPDATE block SET reason = 'x' WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')");
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_TRUE(store->is_blocked(blocked_, sample_device()));
  EXPECT_FALSE(store->block_list_is_whole());
}

TEST_F(BlockList, ALostRowLeavesDefaultsOnly) {
  execute("DELETE FROM block WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')");
  LayeredStore layers(Store::open(file_, Access::kReadOnly), nullptr);
  EXPECT_TRUE(layers.serves_defaults_only());
  EXPECT_TRUE(layers.find_winners(sample_device(), sample_problem(), Objective::kCold).empty());
  EXPECT_FALSE(layers.find_winner(sample_device(), sample_problem(), Objective::kCold));
  int visited = 0;
  layers.visit_winners(sample_device(), [&](const auto&, const auto&, Layer) { ++visited; });
  EXPECT_EQ(visited, 0);
}

TEST_F(BlockList, WhatIsBlockedLaterDoesNotHideWhatWasLost) {
  execute("DELETE FROM block WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')");
  auto store = Store::open(file_, Access::kReadWrite);
  store->block(sample_block(7));
  EXPECT_FALSE(store->block_list_is_whole());
  EXPECT_FALSE(store->check().integrity_ok);
}

TEST_F(BlockList, ASealThatIsGoneIsNoEmptyList) {
  execute("DELETE FROM seal");
  EXPECT_FALSE(Store::open(file_, Access::kReadOnly)->block_list_is_whole());
  EXPECT_FALSE(lets_it_run(file_));
}

TEST_F(BlockList, AShippedLayerWhoseListIsDamagedIsLeftOut) {
  execute("DELETE FROM block WHERE status = 'wrong'");
  LayeredStore layers(nullptr, Store::open(file_, Access::kReadOnly));
  EXPECT_TRUE(layers.shipped_left_out());
  EXPECT_FALSE(layers.serves_defaults_only());
  EXPECT_EQ(layers.shipped(), nullptr);
}

TEST_F(BlockList, AMergeTakesBlocksAndNothingFromAFileThatLostSome) {
  auto into = Store::in_memory();
  {
    const auto whole = Store::open(file_, Access::kReadOnly);
    into->merge(*whole);
  }
  EXPECT_TRUE(into->is_blocked(blocked_, sample_device()));
  EXPECT_TRUE(into->block_list_is_whole());
  execute("DELETE FROM block WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')");
  auto other = Store::in_memory();
  const auto lost = Store::open(file_, Access::kReadOnly);
  EXPECT_THROW(other->merge(*lost), DatabaseError);
  EXPECT_EQ(other->stats().winners, 0);
}

TEST_F(BlockList, ASalvageThatLosesBlocksLeavesNoVerifiedWinner) {
  execute("DELETE FROM block WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')");
  std::string warning;
  Store::salvage(file_, [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warning = line;
  });
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_EQ(store->stats().winners, 6);
  EXPECT_EQ(store->stats().unverified_winners, 6);
  EXPECT_EQ(store->stats().blocks, 41);
  EXPECT_TRUE(store->block_list_is_whole());
  EXPECT_NE(warning.find("vitune verify"), std::string::npos) << warning;
}

TEST_F(BlockList, ASalvageThatLosesNoneKeepsWinnersVerified) {
  Store::salvage(file_);
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_EQ(store->stats().unverified_winners, 0);
  EXPECT_TRUE(store->is_blocked(blocked_, sample_device()));
  EXPECT_TRUE(store->block_list_is_whole());
}

TEST_F(BlockList, NoBitOfTheFileUnblocksAKernel) {
  const std::string bytes = test::read_bytes(file_);
  std::mt19937 random(5);
  const path mutant = dir_ / "mutant.db";
  const auto expect_blocked = [&](const std::string& changed, std::size_t at) {
    test::write_bytes(mutant, changed);
    ASSERT_FALSE(lets_it_run(mutant)) << "byte " << at;
  };
  ASSERT_FALSE(lets_it_run(file_));
  // Where the list is: pages that hold the blocked kernel's key, every byte; elsewhere some.
  const std::string key(reinterpret_cast<const char*>(blocked_.bytes.data()), 32);
  for (std::size_t page = 0; page < bytes.size(); page += 4096) {
    const bool is_list =
        bytes.compare(page, 1, "\x0a") == 0 &&
        bytes.substr(page, 4096).find(sample_block(0).device_key) != std::string::npos;
    const std::size_t step = is_list ? 1 : 97;
    // The lengths of the blocked row's columns stand before its key: every bit of theirs.
    const std::size_t key_at = bytes.find(key, page);
    for (std::size_t bit = 0; is_list && key_at < page + 4096 && bit < 24 * 8; ++bit) {
      std::string changed = bytes;
      const std::size_t at = key_at - 1 - bit / 8;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (bit % 8)));
      expect_blocked(changed, at);
    }
    for (std::size_t at = page; at < page + 4096; at += step) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (random() % 8)));
      expect_blocked(changed, at);
    }
  }
}

}  // namespace
}  // namespace vitune
